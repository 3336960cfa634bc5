//! Robustness: measurements survive an interruption, and secrets are not printed.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench::start_endless;
use crate::program::{Running, Said, assert_refused, run, signal, tidewire};

#[test]
fn a_place_that_takes_no_report_is_told_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |out: &Path| run(&["bench", "--quick", "--out", out.to_str().unwrap()]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert_refused(&bench(&file), &["cannot write to", "file"]);
    for name in ["report.json", "report.html", "report.md"] {
        let out = folder.path().join(name.replace('.', "-"));
        fs::create_dir_all(out.join(name)).unwrap();
        assert_refused(&bench(&out), &[name, "directory"]);
    }
}

#[test]
fn a_full_disk_is_told_before_the_run() {
    let Some(disk) = SmallDisk::mount("64k") else {
        return;
    };
    assert_refused(
        &run(&["bench", "--quick", "--out", disk.path().to_str().unwrap()]),
        &["cannot write to", "space"],
    );
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[test]
fn a_disk_that_fills_up_meanwhile_costs_no_figure() {
    for json in [false, true] {
        let Some(disk) = SmallDisk::mount("2m") else {
            return;
        };
        let flags: &[&str] = if json { &["--json"] } else { &[] };
        let (mut child, mut lines) = start_endless(&disk.path(), flags);
        // The first test is done, the second goes on.
        let mut filler = fs::File::create(disk.path().join("filler")).unwrap();
        while filler.write_all(&[7; 4096]).is_ok() {}
        signal(child.id(), "INT");
        let mut told = String::new();
        lines.read_to_string(&mut told).unwrap();
        let mut printed = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{told}");
        assert!(told.contains("cannot save the report"), "{told}");
        let at = printed.find("{\n").unwrap();
        let report: Value = serde_json::from_str(&printed[at..]).unwrap();
        assert_eq!(report["results"][0]["test"], "connection-storm");
        assert_eq!(json, at == 0, "the tables are printed before");
        let left: Vec<_> = fs::read_dir(disk.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "half a report is left: {left:?}");
    }
}

#[test]
fn two_runs_do_not_write_to_one_place() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, _lines) = start_endless(folder.path(), &[]);
    let out = folder.path().to_str().unwrap();
    assert_refused(
        &run(&["bench", "--quick", "--out", out]),
        &["another run", out],
    );
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // After its end the place is free.
    let said = run(&[
        "bench",
        "--quick",
        "--test",
        "connection-storm",
        "--out",
        out,
    ]);
    assert_ne!(said.code, 2, "{said:?}");
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_text_is_no_panic() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let odd = OsStr::from_bytes(b"report-\xff");
    let mut command = tidewire(&["bench", "--quick", "--test", "connection-storm", "--out"]);
    let said: Said = command
        .arg(folder.path().join(odd))
        .output()
        .unwrap()
        .into();
    assert!(matches!(said.code, 0 | 3), "{said:?}");
    let text = fs::read(folder.path().join(odd).join("report.json")).unwrap();
    let report: Value = serde_json::from_slice(&text).unwrap();
    let command = report["plan"]["command"].as_str().unwrap();
    assert!(command.contains("report-\u{fffd}"), "{command}");
    let mut command = tidewire(&["bench", "--out"]);
    let url = OsStr::from_bytes(b"ws://127.0.0.1:1/\xff");
    assert_refused(
        &command.arg(folder.path()).arg(url).output().unwrap().into(),
        &["UTF-8"],
    );
}

#[test]
fn numbers_without_sense_are_refused_with_their_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (words, bounds) in [
        (["--rate-per-s", "1e-300"], "0.001"),
        (["--rate-per-s", "1e300"], "1000000000"),
        (["--rate-per-s", "nan"], "0.001"),
        (["--duration-s", "1e12"], "2592000"),
        (["--hold-s", "0.001"], "0.01"),
        (["--payload-bytes", "1"], "64"),
        (["--payload-bytes", "175,63"], "64"),
        (["--payload-bytes", "5000000000"], "15728640"),
    ] {
        let said = run(&[&["bench", "--quick", "--out", out], &words[..]].concat());
        assert_refused(&said, &[words[0], bounds]);
    }
    let fan_out = [
        "bench",
        "--test",
        "fan-out",
        "--payload-bytes",
        "64",
        "--out",
        out,
    ];
    assert_refused(&run(&fan_out), &["80"]);
}

#[test]
fn what_is_secret_in_a_url_is_shown_nowhere() {
    let server = Running::serve(&[
        "--protocol",
        "raw",
        "--app",
        "echo",
        "--path",
        "any",
        "--rate-limit-capacity",
        "0",
    ]);
    let folder = tempfile::tempdir().unwrap();
    let url = format!("{}?token=hush-hush&format=json", server.url);
    let out = folder.path().to_str().unwrap();
    let said = run(&[
        "bench", &url, "--quick", "--test", "echo", "--json", "--out", out,
    ]);
    assert!(matches!(said.code, 0 | 3 | 4), "{said:?}");
    let mut shown = vec![said.stdout, said.stderr];
    for file in fs::read_dir(folder.path()).unwrap() {
        shown.push(fs::read_to_string(file.unwrap().path()).unwrap());
    }
    for (url, words) in [
        ("ws://me:hush-hush@127.0.0.1:1/", "user names"),
        ("http://127.0.0.1:1/?key=hush-hush", "ws://"),
        ("ws://127.0.0.1:1/?key=hush-hush", "cannot connect"),
    ] {
        let said = run(&["bench", url, "--quick", "--out", out]);
        assert_refused(&said, &[words]);
        shown.push(said.stderr);
    }
    assert!(
        shown.iter().all(|text| !text.contains("hush-hush")),
        "{shown:#?}"
    );
    assert!(shown[0].contains("?token=…&format=json"), "{}", shown[0]);
}

/// A file system of its own in memory; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// A file system of this size, in the words of `mount`; `None` if this user may not mount.
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path());
        let mounted = command.stderr(Stdio::null()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a file system cannot be mounted here"
        );
        None
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
