//! Several users of one host, as separate processes (needs root), and hosts without a usable folder.

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

const VARIABLE: &str = "SOFTNIC_TEST_SHM_USERS";

/// The error of a process that sends a frame to number 1 of a network, started by the command `wrapper`; empty on success.
fn join(wrapper: &[&str], device: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
    let output = Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", "--ignored", "--nocapture", "shm::tests::users::play"])
        .env(VARIABLE, device)
        .env_remove("XDG_RUNTIME_DIR")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).trim().into()
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn play() {
    let Ok(device) = std::env::var(VARIABLE) else { return };
    let mut words = device.split(' ').filter(|word| !word.is_empty());
    let spec = ShmSpec::parse(words.next(), words.next()).unwrap();
    match Shm::open(&spec) {
        Ok(mut shm) => assert_eq!((send(&mut shm, &[frame_to(Process::FIRST, 1)]), shm.lost()), (1, 0)),
        Err(why) => writeln!(std::io::stderr(), "{why}").unwrap(),
    }
}

/// Whether the test can act as other users; prints a note if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root()
        && Command::new("setpriv").arg("--version").output().is_ok_and(|o| o.status.success());
    if !root {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: needs root and setpriv");
    }
    root
}

fn as_user(user: u32, group: u32) -> [String; 5] {
    let [user, group] = [format!("--reuid={user}"), format!("--regid={group}")];
    ["setpriv".into(), user, group, "--clear-groups".into(), "--".into()]
}

fn join_as(user: u32, group: u32, device: &str) -> String {
    let words = as_user(user, group);
    join(&words.each_ref().map(String::as_str), device)
}

#[test]
fn users_of_one_group_talk_in_its_folder_and_others_are_refused() {
    if !is_root() {
        return;
    }
    let (folder, group) = (Folder::new("group"), 64_001);
    fs::create_dir(&folder.0).unwrap();
    std::os::unix::fs::chown(&folder.0, None, Some(group)).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o2770)).unwrap();
    let name = folder.0.to_str().unwrap();
    let mut first = Shm::open(&ShmSpec::parse(Some(name), Some("0770")).unwrap()).unwrap();
    let device = format!("{name} 0770");
    for user in [64_011, 64_012] {
        assert_eq!(join_as(user, group, &device), "");
        assert_eq!(receive(&mut first, 1).len(), 1);
    }
    let why = join_as(64_013, 64_013, &device);
    assert!(why.contains("Permission denied"), "{why}");
    let why = join_as(64_011, group, name);
    assert!(why.contains("it belongs to another user"), "{why}");
    // Processes of the group continue, and nothing was counted as lost.
    assert_eq!(join_as(64_011, group, &device), "");
    assert_eq!((receive(&mut first, 1).len(), first.lost()), (1, 0));
}

#[test]
fn a_folder_that_another_user_made_first_is_refused_and_said_to_be_anothers() {
    if !is_root() {
        return;
    }
    for (n, mode) in [0o755, 0o777, 0o1777].into_iter().enumerate() {
        let user = 64_021 + n as u32;
        let squatted = PathBuf::from(format!("/tmp/softnic-{user}"));
        let _ = fs::remove_dir_all(&squatted);
        fs::create_dir(&squatted).unwrap();
        fs::set_permissions(&squatted, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&squatted, Some(64_020), Some(64_020)).unwrap();
        let why = join_as(user, user, "");
        fs::remove_dir_all(&squatted).unwrap();
        let line = format!("/tmp/softnic-{user} is not to be trusted: it belongs to another user");
        assert!(why.contains(&line), "{mode:o}: {why}");
    }
}

#[test]
fn without_a_folder_for_temporary_files_the_line_says_what_to_do() {
    if !is_root() {
        return;
    }
    let script = "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /run && exec \"$@\"";
    let why = join(&["unshare", "--mount", "sh", "-c", script, "sh"], "");
    assert!(why.contains("/tmp/softnic-0") && why.contains("Read-only file system"), "{why}");
    assert!(why.contains("set XDG_RUNTIME_DIR to one that is yours, or name one: shm:/path/to/folder"), "{why}");
}
