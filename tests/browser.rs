//! The pages that people look at, in a browser: on a phone, in the dark,
//! without a network.

#![allow(clippy::unwrap_used)] // the configured exception misses helpers of tests

#[allow(dead_code)] // these tests wait for nothing
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Lab;
use serde_json::Value;

/// Sizes and times over NR_CPUS, with a kernel that panics among them.
const FILE: &str = r#"
[source]
path = "linux"
[axes]
arch = ["riscv64"]
NR_CPUS = [64, 128, 256, 512, 1024, 2048, 4096]
STAND_IN_QEMU = ["good", "better", "panic"]
[[exclude]]
STAND_IN_QEMU = "panic"
NR_CPUS = [128, 256, 512, 1024, 2048]
[kernel]
base = "allnoconfig"
[boot]
vcpus = 2
boots = 2
max_other_load = "off"
[[benchmark]]
name = "messages"
command = "messages --rounds 20"
files = ["messages"]
pattern = '^Time: (?<time>[0-9.]+)$'
unit = "s"
better = "lower"
repeat = 3
[[table]]
title = "vmlinux size (bytes)"
metric = "vmlinux.file"
columns = "NR_CPUS"
rows = "STAND_IN_QEMU"
derived = ["difference", "is_smaller"]
[[table]]
title = "messages --rounds 20 --with-an-option-whose-name-is-longer-than-a-telephone-is-wide"
metric = "messages.time"
columns = "NR_CPUS"
rows = "STAND_IN_QEMU"
derived = ["difference"]
"#;

const MEASURE: &str = include_str!("data/measure.js");
/// Width of a small telephone in CSS pixels.
const PHONE: u32 = 360;
/// Least contrast of text and of what is drawn (WCAG 2.2, 1.4.3 and 1.4.11).
const OF_TEXT: f64 = 4.5;
const OF_MARKS: f64 = 3.0;

/// Shows a page `width` pixels wide and returns what the browser measured.
fn shown(page: &str, width: u32, dark: bool) -> Value {
    let room = tempfile::tempdir().unwrap();
    // The page itself allows no script.
    let measured = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';");
    let measured = measured.replace("</body>", &format!("<script>{MEASURE}</script></body>"));
    std::fs::write(room.path().join("page.html"), measured).unwrap();
    // No window is narrower than 500 pixels, but a frame is.
    let around = format!(
        "<!DOCTYPE html><meta name=color-scheme content='light dark'>\
         <iframe src=page.html width={width} height=800 style='border:0'></iframe>\
         <script>onmessage = (m) => {{ document.documentElement.dataset.measured = m.data }}</script>"
    );
    let around_it = room.path().join("around.html");
    std::fs::write(&around_it, around).unwrap();
    let dom = chromium(room.path(), dark, &["--virtual-time-budget=5000", "--dump-dom"], &around_it);
    let text = dom.split_once("data-measured=\"").unwrap_or_else(|| panic!("nothing measured:\n{dom}")).1;
    let text = text.split('"').next().unwrap();
    let text =
        ["&quot;\"", "&lt;<", "&gt;>", "&nbsp;\u{a0}", "&amp;&"].iter().fold(text.to_owned(), |t, e| {
            let (entity, is) = e.split_at(e.find(';').unwrap() + 1);
            t.replace(entity, is)
        });
    serde_json::from_str(&text).unwrap()
}

/// Runs the browser, to which no name resolves, and returns what it prints.
fn chromium(room: &Path, dark: bool, args: &[&str], page: &Path) -> String {
    let out = Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .arg(format!("--user-data-dir={}", room.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .args(args)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap_or_else(|e| panic!("chromium: {e}: apt-get install chromium"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Leaves a picture for people to look at in `target/tmp`.
fn picture(name: &str, page: &str, dark: bool) {
    let room = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&room).unwrap();
    let file = room.join(format!("{name}.html"));
    std::fs::write(&file, page).unwrap();
    let to = format!("--screenshot={}", room.join(format!("{name}.png")).display());
    let profile = tempfile::tempdir().unwrap();
    chromium(profile.path(), dark, &[&to, "--window-size=500,1600"], &file);
}

#[track_caller]
fn fits(name: &str, page: &str, plots: usize) {
    for outside in ["http:", "https:", "url(", "src=", "href=", "<script", "@import", "<link"] {
        assert!(!page.contains(outside), "{name}: `{outside}` in the page");
    }
    for (width, dark) in [(PHONE, true), (PHONE, false), (1280, true), (1280, false)] {
        let it = shown(page, width, dark);
        let name = format!("{name}, {width} pixels{}", if dark { ", dark" } else { "" });
        assert_eq!((&it["width"], &it["dark"]), (&width.into(), &dark.into()), "{name}");
        assert!(it["scroll"].as_u64().unwrap() <= u64::from(width), "{name}: {} wide", it["scroll"]);
        assert_eq!(it["resources"], serde_json::json!([]), "{name}");
        let ground = it["ground"].as_f64().unwrap();
        assert!(if dark { ground < 0.05 } else { ground > 0.9 }, "{name}: ground {ground}");
        let texts = it["texts"].as_array().unwrap();
        assert!(texts.len() > 10, "{name}");
        for text in texts {
            assert!(text["contrast"].as_f64().unwrap() >= OF_TEXT, "{name}: {text}");
        }
        assert_eq!(it["plots"].as_array().unwrap().len(), plots, "{name}");
        for plot in it["plots"].as_array().unwrap() {
            let number = |key: &str| plot[key].as_f64().unwrap();
            assert!(number("width") > 200.0 && number("height") > 80.0, "{name}: {plot}");
            assert!(number("points") >= 2.0 && plot["points"] == plot["circles"], "{name}: {plot}");
            assert!(number("contrast") >= OF_MARKS, "{name}: {plot}");
            assert_eq!((&plot["cut"], &plot["overlapping"]), (&0.into(), &0.into()), "{name}: {plot}");
            assert!(number("smallest") >= 9.0, "{name}: {plot}");
        }
    }
}

#[test]
#[ignore = "needs chromium"]
fn a_report_and_a_history_are_good_to_look_at() {
    let lab = Lab::new(FILE).env("MATRIX_STORE", "history.sqlite");
    for night in 1..=9 {
        lab.matrix(&["run", "lab.toml", "--output", &format!("night-{night}"), "--record", "--quiet"])
            .code(1);
    }
    let report = lab.read("night-9/report.html");
    picture("report", &report, true);
    fits("report", &report, 2);

    let trend = ["history", "messages.time", "--html", "trend.html"];
    lab.matrix(&[&trend[..], &["--only", "STAND_IN_QEMU=good"]].concat()).code(0);
    let trend = lab.read("trend.html");
    picture("trend", &trend, false);
    fits("trend", &trend, 7);
}

/// Tables of every layout, from real runs.
#[test]
#[ignore = "needs chromium"]
fn published_tables_are_good_to_look_at() {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published");
    for entry in std::fs::read_dir(published).unwrap() {
        let dir = entry.unwrap().path();
        let mut report = Command::new(env!("CARGO_BIN_EXE_matrix"));
        let out = report.arg("report").arg(&dir).args(["--format", "html"]).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let page = String::from_utf8(out.stdout).unwrap();
        let name = dir.file_name().unwrap().to_str().unwrap();
        picture(name, &page, name.len() % 2 == 0);
        fits(name, &page, page.matches("<svg").count());
    }
}

/// A page that is wrong in every way must not pass for a good one.
#[test]
#[ignore = "needs chromium"]
fn what_is_wrong_with_a_page_is_measured() {
    let page = "<!DOCTYPE html><html><body style='background:#222'>\
        <img src='https://matrix.invalid/x.png'><p style='color:#666;width:900px'>dim</p>\
        <svg viewBox='0 0 100 50' width=100><text x=90 y=20>cut off</text><text x=88 y=22>over</text>\
        <g class=series><circle cx=500 cy=9 r=3 fill='#333' /></g></svg></body></html>";
    let it = shown(page, PHONE, true);
    assert!(it["scroll"].as_u64().unwrap() > u64::from(PHONE), "{it}");
    assert_eq!(it["resources"], serde_json::json!(["https://matrix.invalid/x.png"]));
    let dim = &it["texts"][0];
    assert!(dim["text"] == "dim" && dim["contrast"].as_f64().unwrap() < OF_TEXT, "{it}");
    let plot = &it["plots"][0];
    assert_eq!((&plot["points"], &plot["circles"]), (&0.into(), &1.into()), "{it}");
    assert_eq!((&plot["cut"], &plot["overlapping"]), (&2.into(), &1.into()), "{it}");
    assert!(plot["contrast"].as_f64().unwrap() < OF_MARKS, "{it}");
}
