//! What processes take.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How often each program runs; the least counts.
pub const ROUNDS: usize = 7;

/// What a process took, in ms.
#[derive(Clone, Copy)]
pub struct Took {
    /// On the clock.
    #[cfg_attr(not(feature = "check"), allow(dead_code, reason = "only the checker's benchmark looks at the clock"))]
    pub clock: f64,
    /// Of the processors, for itself and in the kernel.
    pub cpu: f64,
}

/// Run a program with so many threads, as the shell measures it: the time of a process that has ended is no matter of the
/// standard library.
pub fn took(program: &Path, args: &[String], threads: usize) -> Result<Took, String> {
    let mut shell = Command::new("bash");
    shell.args(["-c", "TIMEFORMAT='%R %U %S'; time \"$@\" > /dev/null", "bash"]).arg(program).args(args);
    let out = shell.env("RAYON_NUM_THREADS", threads.to_string()).output().map_err(|e| format!("bash: {e}"))?;
    let told = String::from_utf8_lossy(&out.stderr);
    let failed = || format!("{} {}: {}", program.display(), args.join(" "), told.trim());
    if !out.status.success() {
        return Err(failed());
    }
    let last = told.lines().last().unwrap_or_default();
    let seconds = last.split(' ').map(str::parse::<f64>).collect::<Result<Vec<_>, _>>().map_err(|_| failed())?;
    match seconds[..] {
        [clock, user, system] => Ok(Took { clock: clock * 1e3, cpu: (user + system) * 1e3 }),
        _ => Err(failed()),
    }
}

/// What a command says on stdout and stderr.
pub fn told(command: &mut Command) -> Result<(String, String), String> {
    let name = format!("{command:?}");
    let out = command.output().map_err(|e| format!("{name}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.success() {
        true => Ok((text(&out.stdout), text(&out.stderr))),
        false => Err(format!("{name}: {}: {}", out.status, text(&out.stderr).trim())),
    }
}

/// CPU time of this process so far, in ms: that of its only thread.
pub fn cpu_so_far() -> Result<f64, String> {
    const FILE: &str = "/proc/self/schedstat";
    // Linux counts what a thread runs when it stops running, or at a tick.
    std::thread::sleep(Duration::from_millis(1));
    let text = std::fs::read_to_string(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    let nanoseconds = text.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    Ok(nanoseconds.ok_or_else(|| format!("{FILE}: no time"))? / 1e6)
}

/// A quarter, a half and three quarters are below.
pub fn quartiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| all.get(all.len() * quarter / 4).copied().unwrap_or(f64::NAN))
}
