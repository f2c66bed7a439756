//! The findings about Linux's own algorithms, `docs/findings.md`: each by its shortest sequence, and by no other repair than its
//! own. With all of them repaired, nothing is left.

use tramptool_compose::{
    Act, Answer, Call, Case, Failure, LINUX_6_12, LINUX_7_3_REPAIRED, OURS, Plan, Seen, Subject, User, What, linux_7_3,
    rare, repair,
};

const ALL: u8 = repair::BIT_0 | repair::OVERRUN | repair::SLOT | repair::MEMORY;

fn user(what: What, f: u64, object: u64) -> User {
    User { what, on: vec![f], not: vec![], answer: Answer::Always, words: 0, then: None, object }
}

fn call(f: u64, body: Vec<Act>) -> Act {
    Act::Call(Call { f, body, tail: None, jumps: false })
}

/// Linux without the other findings fails, and does not with all of them repaired; nor does the runtime.
fn found(only: Subject, case: &Case) -> Failure {
    for good in [LINUX_7_3_REPAIRED, OURS] {
        assert_eq!(good.judge(case), None, "{}", good.name);
    }
    assert!(only.supports(case));
    only.judge(case).expect("a finding")
}

#[test]
fn user_0_sees_returns_of_functions_that_only_another_user_traces() {
    let graph = |f, object| user(What::Graph, f, object);
    let case = Case {
        users: vec![graph(1, 8), graph(0, 16)],
        acts: vec![Act::Register(0), Act::Register(1), call(0, vec![])],
    };
    let failure = found(linux_7_3::<{ ALL & !repair::BIT_0 }>(""), &case);
    let seen = failure.seen.unwrap();
    assert_eq!((seen.seen, seen.user, seen.f), (Seen::GraphReturn, 8, 0), "{failure}");
    // 6.12 does the same.
    assert_eq!(LINUX_6_12.judge(&case).unwrap().seen.unwrap().user, 8);
}

#[test]
fn a_slot_that_comes_around_has_the_returns_of_its_last_owner() {
    let graph = |object| user(What::Graph, 0, object);
    let inside = vec![Act::Unregister(0), Act::Churn(15), Act::Register(1)];
    let case = Case { users: vec![graph(8), graph(16)], acts: vec![Act::Register(0), call(0, inside)] };
    let failure = found(linux_7_3::<{ ALL & !repair::SLOT }>(""), &case);
    let seen = failure.seen.unwrap();
    assert_eq!((seen.seen, seen.user), (Seen::GraphReturn, 16), "{failure}");
    assert_eq!(LINUX_6_12.judge(&case).unwrap().seen.unwrap().user, 16);
}

#[test]
fn a_probe_has_the_exits_of_the_last_one_in_its_memory() {
    let probe = |f, object| user(What::Fprobe { exit: true }, f, object);
    let case = Case {
        users: vec![probe(1, 8), probe(0, 16), probe(2, 16)],
        acts: vec![Act::Register(0), Act::Register(1), call(0, vec![Act::Unregister(1), Act::Register(2)])],
    };
    let failure = found(linux_7_3::<{ ALL & !repair::MEMORY }>(""), &case);
    let seen = failure.seen.unwrap();
    assert_eq!((seen.seen, seen.user, seen.f), (Seen::ProbeExit, 16, 0), "{failure}");
}

#[test]
fn calls_that_find_the_stack_full_are_not_counted() {
    let probe = user(What::Fprobe { exit: true }, 0, 8);
    let deep = (0..97).fold(call(0, vec![]), |inner, _| call(0, vec![inner]));
    let case = Case { users: vec![User { words: 2, ..probe }], acts: vec![Act::Register(0), deep, Act::Missed(0)] };
    let failure = linux_7_3::<{ ALL & !repair::OVERRUN }>("").judge(&case).expect("a finding");
    assert_eq!((failure.expected.unwrap().seen, failure.seen.unwrap().seen), (Seen::Missed, Seen::Missed), "{failure}");
    assert!(failure.expected.unwrap().value > failure.seen.unwrap().value);
    assert_eq!(LINUX_7_3_REPAIRED.judge(&case), None);
    assert_eq!(OURS.judge(&case), None);
}

/// A handler unwinds while another hook of the same entry waits to be put in place: it hides none of those that are.
#[test]
fn hooks_that_are_not_in_place_hide_none_that_are() {
    let kretprobe = user(What::Kretprobe { most: 0 }, 1, 8);
    let users = vec![user(What::Graph, 1, 8), user(What::Op { regs: false }, 1, 8), kretprobe];
    let tail = Call { f: 1, body: vec![], tail: None, jumps: false };
    let jump = Act::Call(Call { tail: Some(Box::new(tail.clone())), ..tail });
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let acts = order.into_iter().map(Act::Register).chain([jump.clone()]).collect();
        let failure = OURS.judge(&Case { users: users.clone(), acts });
        assert_eq!(failure.map(|f| f.to_string()), None);
    }
}

#[test]
fn rare_cases_agree() {
    for case in rare() {
        assert_eq!(OURS.judge(&case).map(|f| f.to_string()), None);
    }
}

#[test]
fn nothing_else_is_found() {
    let plan = Plan { users: u64::MAX, all: true, random: 60_000, seed: 1, only: None, sample: None };
    for subject in [OURS, LINUX_7_3_REPAIRED] {
        let outcome = plan.run(&subject);
        assert!(outcome.cases > 10_000, "{}: {}", subject.name, outcome.cases);
        if let Some((index, failure)) = outcome.failures.into_iter().next() {
            panic!("{}: case {index} of {}\n{}", subject.name, outcome.failed, subject.minimise(failure));
        }
    }
}
