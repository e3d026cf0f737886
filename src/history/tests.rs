use std::io::BufReader;

use tempfile::TempDir;

use super::*;
use crate::model::{Kind, Stage};

const CLOCK: Kind = Kind::EmulatedWallClock;

fn room() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data/history.sqlite");
    (dir, file)
}

/// A run with values that are hard to keep, and a failure.
fn run(began: i64) -> Run {
    let values = [0.1 + 0.2, 1e300, 5e-324, -0.5, 9007199254740993.0, 1.0 / 3.0];
    let mut run = Run::made_up(&["c1", "c'2\"; --"], began).measured("c1", "b.time", CLOCK, Some(1), &values);
    run = run.measured("c'2\"; --", "'); DROP TABLE runs; --", Kind::Exact, None, &[4.0]);
    let failure =
        Failure { boot: Some(2), ..Failure::new(Stage::Boot, "panic", "line\nline \u{1b}[m \u{1f980}") };
    run.results.failures.insert(CellId("c1".into()), vec![failure.clone(), failure]);
    let rev = format!("git v{began} ({:040x})", began * 0x11_1111_1111);
    run.sources.insert(CellId("c1".into()), rev);
    run
}

fn of_runs(file: &Path, began: &[i64]) -> History {
    let mut history = History::open(file).unwrap();
    for began in began {
        history.add(&run(*began)).unwrap();
    }
    history
}

#[track_caller]
fn complains<T: std::fmt::Debug>(result: anyhow::Result<T>, about: &str) {
    let text = format!("{:#}", result.unwrap_err());
    assert!(text.contains(about), "no `{about}` in: {text}");
}

#[test]
fn a_run_is_read_back_as_it_was() {
    let (_dir, file) = room();
    let id = History::open(&file).unwrap().add(&run(1)).unwrap().0;
    let history = History::existing(&file).unwrap().unwrap();
    assert_eq!(history.load(id).unwrap(), run(1));
    complains(history.load(id + 1), "there is none with this number");
    let entry = &history.entries().unwrap()[0];
    assert_eq!((entry.id, entry.name.as_str(), entry.cells, entry.failed), (id, "m", 2, 1));
    assert_eq!((entry.began, entry.sources.len()), (jiff::Timestamp::from_second(1).unwrap(), 2));
}

#[test]
fn nothing_is_created_by_looking() {
    let (dir, file) = room();
    assert!(History::existing(&file).unwrap().is_none());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_same_run_is_there_once() {
    let (_dir, file) = room();
    let mut history = of_runs(&file, &[1]);
    assert_eq!(history.add(&run(1)).unwrap(), (1, Added::Known));
    let more = run(1).measured("c1", "b.time", CLOCK, Some(2), &[7.0]);
    assert_eq!(history.add(&more).unwrap(), (1, Added::Updated));
    assert_eq!(history.load(1).unwrap(), more);
    assert_eq!(history.add(&run(1)).unwrap(), (1, Added::Kept));
    assert_eq!(history.load(1).unwrap(), more);
    assert_eq!(history.add(&run(2)).unwrap(), (2, Added::New));
    let unknown = Run { info: None, ..run(3) };
    complains(history.add(&unknown), "when it began is not known");
}

#[test]
fn what_is_no_number_adds_nothing() {
    let (_dir, file) = room();
    let mut history = of_runs(&file, &[]);
    let bad = run(1).measured("c1", "b.time", CLOCK, Some(3), &[f64::INFINITY]);
    complains(history.add(&bad), "b.time of c1: inf is no value");
    assert!(history.entries().unwrap().is_empty());
}

// --- versions ---

#[test]
fn a_history_of_the_first_version_is_brought_up_to_date() {
    let (_dir, file) = room();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let old = Connection::open(&file).unwrap();
    old.execute_batch(schema::FIRST).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let info = serde_json::to_string(&run(1).info).unwrap();
    let matrix = serde_json::to_string(&run(1).results.matrix).unwrap();
    let sql = "INSERT INTO runs (key, content, name, began, info, matrix) VALUES ('k', 'c', 'm', 1, ?, ?)";
    old.execute(sql, [info, matrix]).unwrap();
    let sql = "INSERT INTO samples VALUES (1, 0, 'c1', 'b.time', 2.5, 's', 'lower', 'exact', NULL, 1)";
    old.execute(sql, []).unwrap();
    drop(old);

    let mut history = History::open(&file).unwrap();
    let samples = history.load(1).unwrap().results.samples;
    assert_eq!((samples[0].value, samples[0].kind, samples[0].iteration), (2.5, Kind::Exact, Some(1)));
    history.set_baseline("good", 1).unwrap();
    let version: i64 = history.db.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
    assert_eq!(version, 2);
}

#[test]
fn what_is_no_history_is_left_alone() {
    let (_dir, file) = room();
    drop(of_runs(&file, &[1]));
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    complains(History::open(&file), "made by a newer version of matrix (schema 99, this one knows 2)");

    let other = file.with_file_name("other.sqlite");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mail (text)").unwrap();
    let before = fs::read(&other).unwrap();
    complains(History::open(&other), "a database of another program");
    assert_eq!(fs::read(&other).unwrap(), before);

    let text = file.with_file_name("text");
    fs::write(&text, "no database at all, just a text that is long enough").unwrap();
    complains(History::open(&text), "no history, or damaged");
    complains(History::open(&text), "text");
}

#[test]
fn writers_wait_for_each_other() {
    let (_dir, file) = room();
    std::thread::scope(|threads| {
        for thread in 0..6 {
            let file = &file;
            threads.spawn(move || {
                for n in 0..5 {
                    // Opened anew each time: at first they race to create it.
                    let mut history = History::open(file).unwrap();
                    history.add(&run(thread * 10 + n)).unwrap();
                }
            });
        }
    });
    let history = History::open(&file).unwrap();
    assert_eq!(history.entries().unwrap().len(), 30);
    assert_eq!(history.load(history.find("latest").unwrap()).unwrap(), run(54));
    let sound: String = history.db.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

// --- finding ---

#[test]
fn runs_are_found_by_many_names() {
    let (_dir, file) = room();
    // In the order of their begin the ids are 2, 1, 3.
    let mut history = of_runs(&file, &[2_000_000, 1_000_000, 3_000_000]);
    history.set_baseline("good", 2).unwrap();
    let commit = format!("{:040x}", 2_000_000i64 * 0x11_1111_1111);
    let expected = [
        ("latest", 3),
        ("latest~1", 1),
        ("latest~2", 2),
        ("good", 2),
        ("1", 1),
        ("1970-01-12T13:46:40Z", 2),
        ("1970-01-31", 1),
        ("2026-01-01", 3),
        ("v3000000", 3),
        (&commit, 1),
        (&commit[..34], 1),
        ("v1", 3), // of another cell, in all of them
    ];
    for (text, id) in expected {
        assert_eq!(history.find(text).unwrap(), id, "{text}");
    }
    for text in ["latest~3", "latest~x", "latest-", "9", "1969-01-01", "v4", "", "' OR 1=1 --", "git"] {
        complains(history.find(text), "no run");
    }
}

#[test]
fn baselines_move_and_hold() {
    let (_dir, file) = room();
    let mut history = of_runs(&file, &[1, 2]);
    history.set_baseline("good", 1).unwrap();
    complains(history.remove(1), "run 1 is the baseline good");
    history.set_baseline("good", 2).unwrap();
    assert_eq!(history.entries().unwrap()[1].baselines, ["good"]);
    history.remove(1).unwrap();
    complains(history.remove(1), "no run 1");
    let rest: i64 =
        history.db.query_row("SELECT count(*) FROM samples WHERE run = 1", [], |r| r.get(0)).unwrap();
    assert_eq!(rest, 0);
    complains(history.set_baseline("other", 1), "no run 1 in the history");
    complains(history.set_baseline("latest", 2), "cannot name a baseline");
}

#[test]
fn default_path_is_in_the_data_folder() {
    let path = |set: &'static [(&str, &str)]| {
        default_path(move |n| set.iter().find(|(name, _)| *name == n).map(|(_, v)| (*v).into()))
    };
    let both = path(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]);
    assert_eq!(both.unwrap(), Path::new("/d/matrix/history.sqlite"));
    let home = path(&[("XDG_DATA_HOME", ""), ("HOME", "/h")]);
    assert_eq!(home.unwrap(), Path::new("/h/.local/share/matrix/history.sqlite"));
    complains(path(&[]), "MATRIX_STORE");
}

// --- export and import ---

fn exported(history: &History) -> Vec<u8> {
    let mut text = Vec::new();
    export(history, &mut text).unwrap();
    text
}

fn imported(history: &mut History, text: &[u8]) -> anyhow::Result<Imported> {
    import(history, &mut BufReader::new(text))
}

#[test]
fn export_and_import_lose_nothing() {
    let (_dir, file) = room();
    let mut history = of_runs(&file, &[2, 1]);
    history.set_baseline("good", 1).unwrap();
    let text = exported(&history);

    let mut other = of_runs(&file.with_file_name("other"), &[]);
    let done = imported(&mut other, &text).unwrap();
    assert_eq!(done, Imported { new: 2, ..Imported::default() });
    assert_eq!(exported(&other), text);
    assert_eq!(other.load(other.find("good").unwrap()).unwrap(), run(2));

    assert_eq!(imported(&mut other, &text).unwrap(), Imported { known: 2, ..Imported::default() });
    other.set_baseline("good", 1).unwrap();
    let done = imported(&mut other, &text).unwrap();
    assert_eq!(done.kept, ["good"]);
}

#[test]
fn damaged_exports_import_nothing() {
    let (_dir, file) = room();
    let text = String::from_utf8(exported(&of_runs(&file, &[1, 2]))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut other = of_runs(&file.with_file_name("other"), &[]);
    for n in 0..lines.len() {
        assert!(imported(&mut other, lines[..n].join("\n").as_bytes()).is_err(), "{n} lines");
    }
    let (last, rest) = lines.split_last().unwrap();
    let missing = [&rest[..1], &rest[rest.len() / 2 + 1..], &[*last]].concat().join("\n");
    complains(imported(&mut other, missing.as_bytes()), "line");
    complains(
        imported(&mut other, text.replace("\"version\":1", "\"version\":2").as_bytes()),
        "newer version",
    );
    complains(imported(&mut other, format!("{text}\n{last}").as_bytes()), "more after the end");
    complains(imported(&mut other, lines[1..].join("\n").as_bytes()), "the header must be the first line");
    complains(imported(&mut other, b"\x00\xff{"), "line 1: not a line of an exported history");
    complains(imported(&mut other, b""), "cut short");
    assert!(other.entries().unwrap().is_empty());
}
