//! Pages that sum up what is in `results` have its figures.

use std::path::Path;

use emu_tests::{ClaimKind, Confidence};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The rows of the first table of a text, in cells; the title is left out.
fn rows(text: &str) -> Vec<Vec<String>> {
    let table = text.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The sections of the results, by their headings.
fn sections(text: &str) -> Vec<(&str, &str)> {
    text.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect()
}

#[test]
fn the_page_of_booted_kernels_has_them_all() {
    let (page, results) = (read("docs/real-kernels.md"), read("results/real-kernels.md"));
    let booted: Vec<(&str, &str)> =
        sections(&results).into_iter().filter(|(_, text)| text.contains("| the kernel's own |")).collect();
    let rows = rows(&page);
    assert_eq!(rows.len(), booted.len());
    for (row, (heading, section)) in rows.iter().zip(booted) {
        let table = self::rows(section);
        let (faults, others): (Vec<_>, Vec<_>) = table.iter().partition(|cells| cells[0].starts_with("fault: "));
        let failed = faults.iter().filter(|cells| cells[3] == "no, as it must be").count();
        // Without baseline there is nothing to be like.
        assert!(others.iter().all(|cells| cells[2] == row[1] && (cells[3] == "yes" || cells[3] == "-")), "{heading}");
        assert_eq!((row[0].as_str(), row[4].clone()), (heading, format!("{failed} of {}", faults.len())));
    }
}

#[test]
fn the_page_of_selftests_has_their_verdicts() {
    let (page, results) = (read("docs/ftrace-selftests.md"), read("results/ftrace-selftests.md"));
    let all = sections(&results);
    let rows = rows(&page);
    assert_eq!(rows.len(), 2 * all.len());
    for row in rows {
        let section = all.iter().find(|(heading, _)| *heading == row[0]).unwrap_or_else(|| panic!("no {}", row[0])).1;
        let of = self::rows(section).into_iter().find(|cells| cells[0] == row[1]).unwrap();
        assert_eq!(of[2..6], row[2..6], "{row:?}");
    }
}

#[test]
fn the_page_of_costs_has_the_counts() {
    let (page, results) = (read("docs/cost.md"), read("results/cost.md"));
    let all = sections(&results);
    let rows = rows(&page);
    assert!(rows.len() > 10);
    for row in rows {
        let of = |heading: &str| format!("`{}`", heading.split(',').next().unwrap_or_default());
        let section =
            all.iter().find(|(heading, _)| of(heading) == row[0]).unwrap_or_else(|| panic!("no {}", row[0])).1;
        let (name, way) = row[1].split_once(", ").unwrap();
        let table = self::rows(section);
        let mut pairs = table.iter().zip(&table[1..]);
        let (theirs, ours) = pairs.find(|(_, ours)| ours[0] == name && ours[1] == way).unwrap();
        let sum = |cells: &[String]| (cells[3].parse::<u32>().unwrap() + cells[4].parse::<u32>().unwrap()).to_string();
        let found = [&theirs[2], &ours[2], &sum(theirs), &sum(ours), &theirs[6], &ours[6]];
        assert_eq!(row[2..].iter().collect::<Vec<_>>(), found, "{row:?}");
    }
}

#[test]
fn the_page_of_speed_has_what_was_measured() {
    let (page, results) = (read("docs/speed.md"), read("results/speed.md"));
    let flat = |name: &str| {
        let row = results.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        row.split('|').nth(2).unwrap().trim().to_owned()
    };
    let drawing = page.split("<!-- drawing -->\n```text\n").nth(1).unwrap().split("```").next().unwrap();
    for line in drawing.lines() {
        let [name, ns, bar] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!((ns, bar.len()), (flat(name).as_str(), ns.parse::<f64>().unwrap().round() as usize), "{line}");
    }
    let figures =
        |line: &&str| line.starts_with('|') && line.contains("| ") && line.contains(|c: char| c.is_ascii_digit());
    let copied: Vec<&str> = page.lines().filter(figures).filter(|line| line.matches('|').count() > 3).collect();
    assert!(copied.len() > 15, "{copied:?}");
    for line in copied {
        assert!(results.lines().any(|row| row == line), "{line}");
    }
}

#[test]
fn the_page_of_ours_and_the_kernels_counts_the_differences() {
    let (page, results) = (read("docs/ours-and-the-kernels.md"), read("results/ours-and-the-kernels.md"));
    let mut counted: Vec<(String, [usize; 3])> = Vec::new();
    for row in rows(&results) {
        // "N differences of behaviour, N for the better".
        let numbers: Vec<usize> = row[2].split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if counted.last().is_none_or(|(objects, _)| *objects != row[0]) {
            counted.push((row[0].clone(), [0; 3]));
        }
        let sum = &mut counted.last_mut().unwrap().1;
        *sum = [sum[0] + 1, sum[1] + numbers.first().unwrap_or(&0), sum[2] + numbers.get(1).unwrap_or(&0)];
    }
    let rows: Vec<(String, [usize; 3])> =
        rows(&page).iter().map(|row| (row[0].clone(), [1, 2, 3].map(|i| row[i].parse().unwrap()))).collect();
    assert_eq!(rows, counted);
}

#[test]
fn the_page_of_tracing_counts_hostile_programs() {
    let (page, results) = (read("docs/tracing.md"), read("results/peers.md"));
    let (pages, all) = (sections(&page), sections(&results));
    let of = |sections: &[(&str, &str)], heading: &str| {
        sections.iter().find(|(found, _)| *found == heading).unwrap_or_else(|| panic!("no {heading}")).1.to_owned()
    };
    let text = of(&all, "Each call recorded");
    let title = text.lines().find(|line| line.starts_with("| program |")).unwrap();
    let tools: Vec<&str> = title.trim_matches('|').split(" | ").skip(1).map(str::trim).collect();
    let verdicts = rows(&text);
    assert_eq!((tools.len(), verdicts.len()), (10, 11));
    let right = |n: usize| verdicts.iter().filter(|row| row[n + 1] == "right").count().to_string();
    let counted: Vec<_> = tools.iter().enumerate().map(|(n, tool)| vec![(*tool).to_owned(), right(n)]).collect();
    assert_eq!(rows(&of(&pages, "Hostile programs")), counted);
}

#[test]
fn the_page_of_audited_packages_is_what_the_tool_says_of_its_claims() {
    let (page, results) = (read("docs/audit.md"), read("results/audit.md"));
    let title = results.lines().nth(2).unwrap();
    let packages = title.split(". ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(packages.parse::<u32>().unwrap() >= 100 && page.contains(&format!("{packages} packages have assembly")));
    let all = sections(&results);
    let of = |heading: &str| all.iter().find(|(found, _)| found.contains(heading)).unwrap().1;
    let number = |cell: &String| cell.parse::<u32>().unwrap();
    let table = of("whose code was read").rsplit("\n\n").next().unwrap();
    let mut known: Vec<(String, u32, u32)> = ClaimKind::ALL
        .iter()
        .filter_map(|kind| Some((kind.to_string(), kind.confidence()?)))
        .map(|(kind, Confidence { true_ones, read })| (kind, true_ones, read - true_ones))
        .collect();
    known.sort();
    let read: Vec<_> = rows(table).iter().map(|row| (row[0].clone(), number(&row[1]), number(&row[2]))).collect();
    assert_eq!(read, known);
    let drawn: Vec<[u32; 3]> = rows(of("at random")).iter().map(|row| [1, 2, 3].map(|i| number(&row[i]))).collect();
    let sum = |i: usize| drawn.iter().map(|row| row[i]).sum::<u32>();
    assert_eq!((sum(0) + sum(1), sum(2)), (200, 0));
    assert!(sum(1) <= 20, "{drawn:?}");
    let breaches = results.lines().find(|line| line.ends_with("were claimed to breach what C relies on.")).unwrap();
    let functions = breaches.split(' ').nth(1).unwrap();
    assert!(page.contains(&format!("Of {functions} functions of five packages")));
    // What was mended is found in the one, and not in the other.
    let mended = rows(of("were mended"));
    assert!(mended.len() > 5 && mended.iter().all(|row| row[2].ends_with(" found") && row[3].ends_with(": clean")));
}
