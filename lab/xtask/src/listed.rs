// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a kernel's own lists say of the code that it wrote: `enabled_functions` of its tracer, `list` of its kprobes, and its list of BPF's
//! links.

use std::collections::{BTreeMap, BTreeSet};

/// Names of what a kernel writes, as its symbols have them.
const WRITTEN: [&str; 4] = ["bpf_trampoline_", "ftrace_trampoline", "kprobe_insn_page", "kprobe_optinsn_page"];

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Numbers of types are below it in a trampoline's name (kernel include/linux/bpf_verifier.h, bpf_trampoline_compute_key).
const KEY: u64 = 1 << 31;

/// The lists, line by line.
pub struct Lists<'t> {
    /// Address, kind, name, and the module in brackets.
    pub symbols: Vec<&'t str>,
    /// Functions that are traced; behind a tab, more of the one before.
    pub traced: Vec<&'t str>,
    /// Address, kind, place, and flags in brackets.
    pub kprobes: Vec<&'t str>,
    /// The numbers of the functions that BPF programs are attached to.
    pub links: Vec<&'t str>,
}

/// Code that a kernel wrote.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Written {
    /// Where it is.
    pub address: u64,
    /// Its symbol.
    pub name: String,
}

impl Written {
    /// What the tool calls it: `bpf_trampoline_6442544083@0xffffffffc0201580`.
    pub fn told(name: &str) -> Option<Written> {
        let (name, address) = name.split_once("@0x")?;
        Some(Written { address: u64::from_str_radix(address, 16).ok()?, name: name.to_owned() })
    }

    /// The symbol of the page that it is in, if that has more of its kind.
    fn page(&self) -> &str {
        match self.name.split_once(':') {
            Some(("kprobe", _)) => "kprobe_insn_page",
            Some(("optprobe", _)) => "kprobe_optinsn_page",
            _ => &self.name,
        }
    }

    fn is_page(&self) -> bool {
        self.name.starts_with("kprobe_")
    }
}

impl Lists<'_> {
    /// The functions that are traced.
    pub fn functions(&self) -> BTreeSet<String> {
        let begins = self.traced.iter().filter(|line| !line.starts_with(['\t', ' ']));
        begins.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }

    /// What the kernel's symbols have of code that it wrote.
    pub fn written(&self) -> BTreeSet<Written> {
        let symbol = |line: &&str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some(Written { address, name: words.nth(1)?.to_owned() })
        };
        let all = self.symbols.iter().filter_map(symbol);
        all.filter(|one| WRITTEN.iter().any(|name| one.name.starts_with(name))).collect()
    }

    /// What sites lead to, of code that the kernel wrote: an address, or a symbol with an offset.
    fn targets(&self) -> BTreeSet<&str> {
        let behind = |word: &'static str| self.traced.iter().flat_map(move |line| line.split(word).skip(1));
        let target = |rest: &'_ str| rest.split([' ', '+']).next().unwrap_or_default().len();
        let all = behind("\ttramp: ").chain(behind("-->")).map(|rest| &rest[..target(rest)]);
        all.filter(|target| target.starts_with("0x") || WRITTEN.iter().any(|name| target.starts_with(name))).collect()
    }

    /// Does the tracer's list agree that the site of this function leads there? It names what the kernel wrote, and says of a
    /// copy of an entry trampoline that the site leads to nothing else.
    pub fn leads(&self, function: &str, target: &str) -> bool {
        let begins = |line: &&&str| line.split_whitespace().next() == Some(function) && !line.starts_with('\t');
        let mut lines = self.traced.iter().skip_while(|line| !begins(line));
        let Some(first) = lines.next() else { return false };
        let said =
            [&[*first][..], &lines.take_while(|line| line.starts_with('\t')).copied().collect::<Vec<_>>()].concat();
        let names = |what: &str| said.iter().any(|line| line.contains(what));
        match target.split_once('@').unwrap_or((target, "")) {
            (name, _) if name.starts_with("bpf_trampoline_") => names(&format!("-->{name}+0x0/")),
            ("ftrace_trampoline", "") => names("\ttramp: 0x"),
            ("ftrace_trampoline", address) => names(&format!("\ttramp: {address} ")),
            _ => !names("\ttramp: 0x"),
        }
    }

    /// How what was found differs from what these lists say.
    pub fn differences(&self, found: &BTreeSet<Written>) -> Vec<String> {
        let mut wrong = Vec::new();
        let listed = self.written();
        let of_page = |page: &Written, one: &Written| {
            page.name == one.page() && one.address.wrapping_sub(page.address) < if page.is_page() { PAGE } else { 1 }
        };
        let missing = listed.iter().filter(|listed| !found.iter().any(|one| of_page(listed, one)));
        wrong.extend(missing.map(|one| format!("the kernel's symbol {one:x?} is not in the report")));
        let unknown = found.iter().filter(|one| !listed.iter().any(|listed| of_page(listed, one)));
        wrong.extend(unknown.map(|one| format!("{one:x?} is no symbol of the kernel")));
        let is_found = |target: &&str| match target.strip_prefix("0x").map(|at| u64::from_str_radix(at, 16)) {
            Some(at) => found.iter().any(|one| Ok(one.address) == at),
            None => found.iter().any(|one| one.name == **target),
        };
        let lost = self.targets().into_iter().filter(|target| !is_found(target));
        wrong.extend(lost.map(|target| format!("a site leads to {target}, which is not in the report")));
        let attached: BTreeSet<u64> = self.links.iter().filter_map(|line| line.trim().parse().ok()).collect();
        let key = |one: &Written| one.name.strip_prefix("bpf_trampoline_")?.parse::<u64>().ok();
        let traced: BTreeSet<u64> = found.iter().filter_map(key).map(|key| key % KEY).collect();
        if attached != traced {
            wrong.push(format!("programs are attached to the functions {attached:?}, the report has {traced:?}"));
        }
        let probes =
            |of: fn(&&&str) -> bool| self.kprobes.iter().filter(of).filter_map(|line| line.split_whitespace().nth(2));
        let (elsewhere, optimized): (BTreeSet<&str>, BTreeSet<&str>) = (
            probes(|line| !line.contains("[FTRACE]")).collect(),
            probes(|line| line.contains("[OPTIMIZED]")).collect(),
        );
        let told = |word: &str| found.iter().filter_map(|one| one.name.strip_prefix(word)).collect::<BTreeSet<&str>>();
        // Some instructions the kernel does itself, without a copy: up to a third of them.
        let strange: Vec<&str> = told("kprobe:").difference(&elsewhere).copied().collect();
        if !strange.is_empty() || 3 * told("kprobe:").len() < 2 * elsewhere.len() {
            wrong.push(format!("the kernel has kprobes at {elsewhere:?}, the report has {:?}", told("kprobe:")));
        }
        if told("optprobe:") != optimized {
            wrong.push(format!("jumps are in the place of {optimized:?}, the report has {:?}", told("optprobe:")));
        }
        wrong
    }

    /// Copies of entry trampolines that no site leads to: those of who shares all functions with others, and of who has none.
    pub fn idle<'f>(&self, found: &'f BTreeSet<Written>) -> Vec<&'f Written> {
        let targets = self.targets();
        let leads = |one: &&Written| !targets.contains(format!("{:#x}", one.address).as_str());
        found.iter().filter(|one| one.name == "ftrace_trampoline").filter(leads).collect()
    }

    fn optimized(&self) -> usize {
        self.kprobes.iter().filter(|line| line.contains("[OPTIMIZED]")).count()
    }

    /// What they count, in words.
    pub fn counts(&self) -> String {
        let mut links: BTreeMap<&str, usize> = BTreeMap::new();
        self.links.iter().for_each(|line| *links.entry(line).or_default() += 1);
        let by_sites = self.kprobes.iter().filter(|line| line.contains("[FTRACE]")).count();
        format!(
            "by the kernel's own lists: {} BPF programs at {} functions; {} functions traced, by {} trampolines that it wrote; \
             {} kprobes, {by_sites} of them at sites, {} with jumps",
            self.links.len(),
            links.len(),
            self.functions().len(),
            self.targets().len(),
            self.kprobes.len(),
            self.optimized(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kernels say it.
    fn lists() -> Lists<'static> {
        Lists {
            symbols: vec![
                "ffffffffb9841bf0 T vfs_open ",
                "ffffffffc04ad000 t ftrace_trampoline [__builtin__ftrace]",
                "ffffffffc029a680 t bpf_trampoline_6442494261 [bpf]",
                "ffffffffc04a7000 t kprobe_insn_page [__builtin__kprobes]",
            ],
            traced: vec![
                "vfs_open (1) R   D   M \ttramp: ftrace_regs_caller+0x0/0x65 (call_direct_funcs+0x0/0x20)",
                "\tdirect(jmp)-->bpf_trampoline_6442494261+0x0/0xac",
                "vfs_create (1)           \ttramp: 0xffffffffc04ad000 (ftrace_graph_func+0x0/0x20) ->ftrace_graph_func+0x0/0x20",
            ],
            kprobes: vec![
                "ffffffffb984da14  k  vfs_getattr+0x4    [FTRACE]",
                "ffffffffb985827e  k  vfs_unlink+0x1e    ",
            ],
            links: vec!["43317", "43317"],
        }
    }

    fn found() -> BTreeSet<Written> {
        let names = [
            "bpf_trampoline_6442494261@0xffffffffc029a680",
            "ftrace_trampoline@0xffffffffc04ad000",
            "kprobe:vfs_unlink+0x1e@0xffffffffc04a7010",
        ];
        names.iter().filter_map(|name| Written::told(name)).collect()
    }

    #[test]
    fn what_is_found_is_compared_with_each_list() {
        let lists = lists();
        assert_eq!(lists.differences(&found()), Vec::<String>::new());
        assert!(lists.idle(&found()).is_empty());
        assert_eq!(Lists { traced: Vec::new(), ..self::lists() }.idle(&found()).len(), 1);
        assert_eq!(lists.functions(), ["vfs_create", "vfs_open"].map(str::to_owned).into());
        for lost in found() {
            let fewer: BTreeSet<Written> = found().into_iter().filter(|one| *one != lost).collect();
            // It misses a symbol, and what led to that.
            assert_eq!(lists.differences(&fewer).len(), if lost.name.starts_with("bpf") { 3 } else { 2 }, "{lost:?}");
        }
        assert!(lists.leads("vfs_open", "bpf_trampoline_6442494261") && lists.leads("vfs_open", "ftrace_caller"));
        assert!(lists.leads("vfs_create", "ftrace_trampoline@0xffffffffc04ad000"));
        assert!(!lists.leads("vfs_create", "ftrace_trampoline@0xffffffffc04ad001"));
        assert!(!lists.leads("vfs_create", "ftrace_caller") && !lists.leads("vfs_create", "bpf_trampoline_6442494261"));
        assert!(!lists.leads("vfs_open", "bpf_trampoline_644249426") && !lists.leads("vfs_ope", "ftrace_caller"));
        let more = Lists { links: vec!["43317", "43318"], ..lists };
        assert_eq!(more.differences(&found()).len(), 1);
        let optimized = Lists { kprobes: vec!["ffffffffb985827e  k  vfs_unlink+0x1e    [OPTIMIZED]"], ..more };
        assert_eq!(optimized.differences(&found()).len(), 2);
    }
}
