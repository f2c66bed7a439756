//! A process of an engine as a child of ours, until it ends.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::stepped::Stepper;

/// Bytes of what a process says that are read.
const MOST_WORDS: usize = 4096;

/// The process.
pub(super) enum Process {
    /// It was started.
    Started(Child),
    /// Another one became two.
    Forked(Pid),
    /// It was started, and a thread of ours steps its CPU.
    Stepped(Child, Stepper),
}

impl Process {
    /// Why it is gone, if it is, in a sentence about the program.
    ///
    /// # Errors
    /// It is none of ours.
    pub fn ended(&mut self, name: &str) -> io::Result<Option<String>> {
        if let Some(status) = self.status()? {
            return Ok(Some(format!("{name} ended: {status}{}", self.last_words())));
        }
        let Process::Stepped(_, stepper) = self else { return Ok(None) };
        if !stepper.is_gone() {
            return Ok(None);
        }
        // It goes no further, or it ends just now, which says more.
        std::thread::sleep(Duration::from_millis(100));
        match self.status()? {
            Some(status) => Ok(Some(format!("{name} ended: {status}{}", self.last_words()))),
            None => Ok(self.stepper().and_then(Stepper::end).map(|e| e.to_string())),
        }
    }

    fn stepper(&mut self) -> Option<&mut Stepper> {
        if let Process::Stepped(_, stepper) = self { Some(stepper) } else { None }
    }

    /// How it ended, if it has.
    fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Process::Started(child) | Process::Stepped(child, _) => child.try_wait(),
            Process::Forked(pid) => {
                let ended = waitpid(Some(*pid), WaitOptions::NOHANG)?;
                Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
            }
        }
    }

    /// End it, wherever it is. It may have ended by itself.
    pub fn end(&mut self) {
        match self {
            Process::Started(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Process::Stepped(child, stepper) => {
                let _ = child.kill();
                let _ = child.wait();
                stepper.end();
            }
            Process::Forked(pid) => {
                let _ = kill_process(*pid, Signal::KILL);
                let _ = waitpid(Some(*pid), WaitOptions::empty());
            }
        }
    }

    /// What it said at its end, for a sentence. Of one that was forked, the one that it comes from has that.
    fn last_words(&mut self) -> String {
        let (Process::Started(child) | Process::Stepped(child, _)) = self else { return String::new() };
        let Some(stderr) = &mut child.stderr else { return String::new() };
        let mut said = [0; MOST_WORDS];
        // Without words it has ended all the same.
        let bytes = stderr.read(&mut said).unwrap_or_default();
        let said = String::from_utf8_lossy(said.get(..bytes).unwrap_or_default()).into_owned();
        said.lines().last().map_or(String::new(), |line| format!(", and said: {line}"))
    }
}
