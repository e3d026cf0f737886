//! `matrix report --check`: the tables that kernel developers published, as
//! they stand in mails, and what is wrong with them.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use matrix::report::check::{FindingKind, Report, check};

fn mails() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mail")
}

fn mail(name: &str) -> Report {
    check(name, &fs::read_to_string(mails().join(name)).unwrap())
}

/// The findings other than how figures were read, as printed.
fn findings(report: &Report) -> Vec<String> {
    let text = report.text();
    let lines = text.lines().filter(|line| !line.contains(": read as: "));
    lines.map(str::to_owned).collect()
}

/// Runs `matrix` in the folder of the mails.
fn matrix(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
    command
        .args(args)
        .current_dir(mails())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command line that is refused closes its input early.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn riscv_vmlinux_size() {
    let name = "riscv-vmlinux-size.txt";
    assert_eq!(
        findings(&mail(name)),
        [
            format!(
                "{name}:9: wrong: difference at 2048 says -0.001 (no % sign), 19969672 to 19968544 gives -0.006% (-0.00565%)"
            ),
            format!(
                "{name}: 1 table; 5 percentages: 4 right, 0 within rounding, 0 truncated, 1 wrong; 5 other figures: 5 right, 0 within rounding, 0 truncated, 0 wrong"
            ),
        ]
    );
}

#[test]
fn riscv_hackbench_in_a_reply() {
    let report = mail("riscv-hackbench.txt");
    assert_eq!((report.percentages.checked, report.percentages.right), (6, 6));
    assert_eq!(findings(&report).len(), 1);
}

#[test]
fn arm64_hackbench() {
    let name = "arm64-hackbench.txt";
    assert_eq!(
        findings(&mail(name)),
        [
            format!(
                "{name}:5: truncated: 512 CPUs on stack says + 0.18%, 7.8564 to 7.8713 gives +0.19% (+0.1897%)"
            ),
            format!(
                "{name}:6: truncated: 512 CPUs off stack says + 0.44%, 7.8564 to 7.8916 gives +0.45% (+0.4480%)"
            ),
            format!("{name}: 1 table; 2 percentages: 0 right, 0 within rounding, 2 truncated, 0 wrong"),
        ]
    );
}

#[test]
fn arm64_kernel_size() {
    for name in ["arm64-kernel-size.txt", "arm64-kernel-size-tabs.txt"] {
        let report = mail(name);
        let [covers, slip, summary] = &findings(&report)[..] else { panic!("{}", report.text()) };
        assert!(
            covers.ends_with("note: the percentage covers data alone; of text + data it is +0.05%, +0.04%"),
            "{covers}"
        );
        let expected = "truncated: vmlinuz-6.8.0-rc4-offstack512 says +0.14%, 9589248 to 9603584 gives +0.15% (+0.1495%)";
        assert!(slip.ends_with(expected), "{slip}");
        assert!(summary.ends_with(": 1 right, 0 within rounding, 1 truncated, 0 wrong"), "{summary}");
    }
}

/// Of 102 percentages 55 were cut off; the others are the same either way.
#[test]
fn sched_idle_search() {
    let report = mail("sched-idle-search.txt");
    let counts = report.percentages;
    assert_eq!((report.tables, report.unchecked), (15, 0));
    assert_eq!((counts.checked, counts.right, counts.truncated), (102, 47, 55));
    let lower = report.findings.iter().filter(|f| f.message.ends_with("positive is a decrease"));
    // Hackbench and schbench, in three modes each; tbench and stream are better higher.
    assert_eq!(lower.count(), 6);
    let truncated = report.findings.iter().filter(|f| f.kind == FindingKind::Truncated);
    let truncated: Vec<_> = truncated.map(|f| f.figure.as_ref().unwrap()).collect();
    assert_eq!(truncated.len(), 55);
    let first = truncated[0];
    assert_eq!((&*first.place, &*first.printed, &*first.expected), ("4-groups", "1.73 pct", "1.74%"));
    let last = truncated[54];
    assert_eq!((&*last.place, &*last.printed, &*last.expected), ("Scale", "4.95 pct", "4.96%"));
}

#[test]
fn topology_span() {
    let report = mail("topology-span.txt");
    let counts = report.percentages;
    assert_eq!((counts.checked, counts.right, counts.wrong), (3, 3, 0), "{}", report.text());
    assert_eq!((report.others.checked, report.others.right), (1, 1), "{}", report.text());
}

#[test]
fn exit_codes() {
    let code = |file: &str| matrix(&["report", "--check", file], b"").status.code();
    assert_eq!(code("riscv-hackbench.txt"), Some(0));
    assert_eq!(code("riscv-vmlinux-size.txt"), Some(1));
    assert_eq!(code("sched-idle-search.txt"), Some(1));
    assert_eq!(code("README.md"), Some(2));

    let missing = matrix(&["report", "--check", "missing.txt"], b"");
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("missing.txt cannot be checked"), "{}", stderr(&missing));
    let both = matrix(&["report", "latest", "--check", "README.md"], b"");
    assert_eq!(both.status.code(), Some(2));
    assert_eq!(matrix(&["report"], b"").status.code(), Some(2));
    let csv = matrix(&["report", "--check", "riscv-hackbench.txt", "--format", "csv"], b"");
    assert_eq!((csv.status.code(), csv.stdout.len()), (Some(2), 0));
    assert!(stderr(&csv).contains("--check has the formats text and json"), "{}", stderr(&csv));
}

#[test]
fn standard_input() {
    let checked = matrix(&["report", "--check", "-"], b"a\xff  1000\nb  1100  +11.0%\n");
    assert_eq!(checked.status.code(), Some(1));
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.contains("<stdin>:2: wrong: b says +11.0%, 1000 to 1100 gives +10.0%"), "{text}");

    let nothing = matrix(&["report", "--check", "-"], b"nothing\n");
    assert_eq!(nothing.status.code(), Some(2));
    let text = String::from_utf8(nothing.stdout).unwrap();
    assert_eq!(text, "<stdin>: no table with percentages found: nothing was checked\n");

    let long = matrix(&["report", "--check", "-"], &vec![b'\n'; (10 << 20) + 1]);
    assert_eq!(long.status.code(), Some(2));
    assert!(stderr(&long).contains("more than 10 MiB"), "{}", stderr(&long));
}

#[test]
fn json() {
    let checked = matrix(&["report", "--check", "arm64-kernel-size.txt", "--format", "json"], b"");
    assert_eq!(checked.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(json["percentages"]["truncated"], 1);
    let slip = &json["findings"][2];
    assert_eq!((&slip["line"], &slip["kind"]), (&6.into(), &"truncated".into()));
    assert_eq!((&slip["printed"], &slip["expected"]), (&"+0.14%".into(), &"+0.15%".into()));
}
