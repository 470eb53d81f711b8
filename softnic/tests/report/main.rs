//! `softnic report`: what is in a page, and that a browser draws it.

mod browser;
mod contents;
mod errors;
mod pixels;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn softnic(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).args(arguments).output().unwrap()
}

/// As [`softnic`], where it must succeed.
fn succeed(arguments: &[&str]) -> Output {
    let output = softnic(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn corpus(name: &str) -> String {
    format!("{}/../pcaps/corpus/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A folder of one test alone, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("softnic-report-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The data of a page.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"report\">").expect("a page with data");
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// The data of the page that is made of some files.
fn report(files: &[&str]) -> Value {
    let Output { stdout, .. } = succeed(&[&["report", "-o", "-"], files].concat());
    data(&String::from_utf8(stdout).unwrap())
}
