//! The suite: where Debian puts it, unpacked into a folder of its own, without what is for other vendors' devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::guest::{Error, create_folder, failed};

/// The interpreter that Debian's modules are for, whichever other one comes first on the PATH.
pub(super) const PYTHON: &str = "/usr/bin/python3";
const PACKAGE: &str = "python3-pyverbs";
const RUNNER: &str = include_str!("runner.py");
/// Modules for devices of others: NICs of NVIDIA and Amazon, GPUs.
const VENDORS: [&str; 3] = ["test_mlx5", "test_efa", "test_cuda"];

/// The suite, ready to be run.
#[derive(Debug)]
pub(super) struct Suite {
    /// Debian's version of rdma-core.
    pub(super) version: String,
    /// Modules that were left out because they are another vendor's.
    pub(super) vendors: Vec<String>,
    /// All other tests, `module.class.test`, in their order.
    pub(super) tests: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) runner: PathBuf,
}

/// What a command prints.
fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::Missing(format!("`{name}` cannot be started: {e}")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Error::Failed(format!("`{name}`: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

fn text(command: &mut Command) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(&output(command)?).into_owned())
}

/// A module's name, of its file.
fn module(file: &str) -> Option<&str> {
    let name = file.strip_suffix(".gz").unwrap_or(file).strip_suffix(".py")?;
    name.starts_with("test_").then_some(name)
}

fn is_vendors(module: &str) -> bool {
    VENDORS.iter().any(|vendor| module.starts_with(vendor))
}

impl Suite {
    /// Copies it into `scratch`.
    pub(super) fn gather(scratch: &Path) -> Result<Suite, Error> {
        let version = text(Command::new("dpkg-query").args(["-W", "-f", "${Version}", PACKAGE]))?;
        let files = text(Command::new("dpkg").args(["-L", PACKAGE]))?;
        let first = files.lines().find_map(|line| line.strip_suffix("/tests/__init__.py"));
        let first = first.ok_or_else(|| Error::Missing(format!("{PACKAGE} {version} has no tests in it")))?;
        let from = Path::new(first).join("tests");
        // It is imported by this name.
        let folder = scratch.join("tests");
        create_folder(&folder)?;
        let mut vendors = Vec::new();
        for entry in fs::read_dir(&from).map_err(failed(&from))? {
            let path = entry.map_err(failed(&from))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(module) = module(&name).filter(|module| is_vendors(module)) {
                vendors.push(module.to_owned());
                continue;
            }
            let to = folder.join(name.strip_suffix(".gz").unwrap_or(&name));
            match name.ends_with(".gz") {
                true => fs::write(&to, output(Command::new("gzip").arg("-dc").arg(&path))?).map_err(failed(&to))?,
                false => fs::copy(&path, &to).map(drop).map_err(failed(&to))?,
            }
        }
        vendors.sort();
        let runner = scratch.join("runner.py");
        fs::write(&runner, RUNNER).map_err(failed(&runner))?;
        let mut suite = Suite { version, vendors, tests: Vec::new(), folder, runner };
        suite.tests = text(suite.python().arg("list"))?.lines().map(str::to_owned).collect();
        match suite.tests.is_empty() {
            true => Err(Error::Failed("the suite lists no test".into())),
            false => Ok(suite),
        }
    }

    /// The runner, without what it shall do.
    fn python(&self) -> Command {
        let mut command = Command::new(PYTHON);
        command.arg(&self.runner).arg(&self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// The modules, in their order, with their tests.
    pub(super) fn modules(tests: &[String]) -> impl Iterator<Item = (&str, &[String])> {
        tests.chunk_by(|a, b| module_of(a) == module_of(b)).map(|tests| (module_of(&tests[0]), tests))
    }
}

/// The module of a test.
pub(super) fn module_of(test: &str) -> &str {
    test.split('.').next().unwrap_or(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_other_vendors_are_known_by_their_names() {
        assert_eq!(module("test_mlx5_dr.py.gz"), Some("test_mlx5_dr"));
        assert_eq!((module("base.py.gz"), module("test_qp.txt")), (None, None));
        assert!(is_vendors("test_mlx5_dr") && is_vendors("test_efadv") && is_vendors("test_cuda_dmabuf"));
        assert!(!is_vendors("test_mr"));
    }

    #[test]
    fn tests_of_a_module_stay_together() {
        let tests = ["test_cq.A.x", "test_cq.A.y", "test_cqex.B.z"].map(str::to_owned);
        let modules: Vec<_> = Suite::modules(&tests).map(|(name, tests)| (name, tests.len())).collect();
        assert_eq!(modules, [("test_cq", 2), ("test_cqex", 1)]);
    }
}
