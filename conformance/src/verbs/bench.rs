//! What the tests of programs run with: the build of softnic, and folders for what they leave.

use std::path::PathBuf;

use crate::guest::create_folder;
use crate::tshark::Scratch;
use crate::{programs, setup};

/// What the tests run with.
pub(crate) struct Bench {
    /// The program, with the library beside it.
    pub(super) softnic: PathBuf,
    pub(super) scratch: Scratch,
    pub(super) verbose: bool,
    /// Where the checker puts what it finds in programs, if they run under it.
    pub(super) findings: Option<PathBuf>,
}

impl Bench {
    pub(super) fn new(release: bool, verbose: bool) -> Result<Bench, String> {
        println!("{}", setup::install(&setup::VERBS)?);
        let words = match release {
            true => vec!["build", "--locked", "--release", "-p", "softnic", "-p", "softnic-verbs"],
            // The example has cargo count in what only tests depend on, so that nothing is built that they have built.
            false => {
                [&["build", "--lib", "--bin", "softnic", "--example", "ping_pong"], &programs::TESTED[..]].concat()
            }
        };
        Bench::with(programs::build_one("softnic", &words)?, verbose)
    }

    /// With a program that is built.
    pub(super) fn with(softnic: PathBuf, verbose: bool) -> Result<Bench, String> {
        let scratch = Scratch::new("verbs")?;
        create_folder(&scratch.0.join(TEMPORARY)).map_err(|e| e.to_string())?;
        Ok(Bench { softnic, scratch, verbose, findings: None })
    }

    /// From now on programs run under the checker.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let folder = self.scratch.0.join("findings");
        create_folder(&folder).map_err(|e| e.to_string())?;
        self.findings = Some(folder);
        Ok(())
    }

    /// The folder that programs have for temporary files: nothing may be left there.
    pub(super) fn temporary(&self) -> PathBuf {
        self.scratch.0.join(TEMPORARY)
    }
}

/// Its name.
const TEMPORARY: &str = "tmp";
