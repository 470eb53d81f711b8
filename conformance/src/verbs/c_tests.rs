//! C programs of verbs/tests/c: compiled against the installed headers of rdma-core, run on softnic.
//!
//! A program has passed when it exits with 0; 77 leaves it out, and its last line says why. Lines at its head say how it is run:
//! `// run: --dev mem` (options of `softnic run`; this is the default; `none` runs it without), `// link: -ldl` (what it is linked
//! with instead of both libraries), `// seconds: 60` (how long it may take), `// check: KIND` (`softnic check` finds this in it, and nothing
//! when it gets an argument). Those that say nothing of it are run on other wires, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::{Bench, checked, layouts};
use crate::guest::{Error, create_folder, failed, interrupted};
use crate::project;
use crate::tshark::Scratch;

const FOLDER: &str = "verbs/tests/c";
pub(super) const CFLAGS: [&str; 7] = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
/// The exit code of a test that cannot do its work here.
const LEFT_OUT: i32 = 77;
/// Programs that run under valgrind's memcheck, too, where people look for errors of their own: it must find none in softnic. They have both ends
/// in one process: valgrind runs one thread at a time, too slowly for the ACK timeouts of two.
const UNDER_VALGRIND: [&str; 3] = ["atomics", "basic", "events"];
/// How they are started. The exit code is that of an error that memcheck found.
const VALGRIND: [&str; 3] = ["valgrind", "-q", "--error-exitcode=99"];
/// How long a program may take there at least.
const VALGRIND_LIMIT: Duration = Duration::from_secs(120);
/// The program that prints where fields lie.
const OFFSETS: &str = "offsets";

/// What is between the devices of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wire {
    /// Memory, within one process.
    Memory,
    /// The same with some time: nothing that was posted is done at once.
    Slow,
    /// Memory again, and RC queue pairs that speak Selective Repeat.
    Selective,
    /// And LoWAR.
    Repaired,
    /// Sockets: two devices that know nothing of each other.
    Sockets,
    /// These options of `softnic run`.
    Options(Vec<String>),
    /// Memory, under valgrind.
    Valgrind,
    /// Memory, under `softnic check`, which finds this kind of mistake.
    Checked(String),
    /// Nothing: it runs without softnic.
    None,
}

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CTest {
    pub(super) name: String,
    source: PathBuf,
    pub(super) wire: Wire,
    link: Vec<String>,
    limit: Duration,
}

/// All programs, in the order of their names; first on a wire in memory, then those that other wires are for on these.
pub(super) fn all() -> Result<Vec<CTest>, String> {
    let folder = project::root().join(FOLDER);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{FOLDER}: {e}"))?;
    let mut sources: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    sources.retain(|path| path.extension().is_some_and(|e| e == "c"));
    sources.sort();
    let mut all = sources.iter().map(|source| CTest::read(source)).collect::<Result<Vec<_>, _>>()?;
    for wire in [Wire::Slow, Wire::Selective, Wire::Repaired, Wire::Sockets] {
        let plain = all.iter().filter(|test| test.wire == Wire::Memory);
        all.extend(plain.map(|test| CTest { wire: wire.clone(), ..test.clone() }).collect::<Vec<_>>());
    }
    let under_valgrind = all.iter().filter(|t| t.wire == Wire::Memory && UNDER_VALGRIND.contains(&&*t.name));
    let under_valgrind =
        under_valgrind.map(|t| CTest { wire: Wire::Valgrind, limit: t.limit.max(VALGRIND_LIMIT), ..t.clone() });
    all.extend(under_valgrind.collect::<Vec<_>>());
    Ok(all)
}

/// Prints where fields lie, as the installed headers have it.
pub(super) fn print_offsets() -> Result<(), String> {
    let scratch = Scratch::new("offsets")?;
    let test = CTest::named(OFFSETS)?;
    let program = test.compile(&scratch.0).map_err(|e| e.to_string())?;
    match Command::new(program).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("{OFFSETS}: {other:?}")),
    }
}

/// Measures what verbs cost the program that calls them.
pub(super) fn measure_cost(bench: &Bench) -> Result<(), String> {
    ["cost", "spin"].into_iter().try_for_each(|name| {
        let program = CTest::read(&project::root().join(format!("verbs/benches/{name}.c")))?;
        program.run(bench).map_err(|e| e.to_string())
    })
}

impl CTest {
    /// That of the file with this name.
    pub(super) fn named(name: &str) -> Result<CTest, String> {
        CTest::read(&project::root().join(FOLDER).join(format!("{name}.c")))
    }

    fn read(source: &Path) -> Result<CTest, String> {
        let text = fs::read_to_string(source).map_err(|e| format!("{}: {e}", source.display()))?;
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        CTest::parse(&name, source, &text)
    }

    fn parse(name: &str, source: &Path, text: &str) -> Result<CTest, String> {
        let head = || text.lines().take_while(|line| line.starts_with("//"));
        let said = |key: &str| head().find_map(|line| line.strip_prefix(&format!("// {key}:"))).map(str::trim);
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let wire = match (said("check"), said("run")) {
            (Some(kind), _) => Wire::Checked(kind.into()),
            (None, None) => Wire::Memory,
            (None, Some("none")) => Wire::None,
            (None, Some(options)) => Wire::Options(words(options)),
        };
        let link = words(said("link").unwrap_or("-libverbs -lrdmacm"));
        let seconds = said("seconds").map_or(Ok(30), str::parse);
        let seconds = seconds.map_err(|e| format!("{}: seconds: {e}", source.display()))?;
        let limit = Duration::from_secs(seconds);
        Ok(CTest { name: name.into(), source: source.into(), wire, link, limit })
    }

    pub(super) fn compile(&self, folder: &Path) -> Result<PathBuf, Error> {
        let program = folder.join(&self.name);
        let mut gcc = Command::new("gcc");
        gcc.args(CFLAGS).arg("-o").arg(&program).arg(&self.source).args(&self.link);
        let output = gcc.output().map_err(|e| Error::Missing(format!("`gcc` cannot be started: {e}")))?;
        match output.status.success() {
            true => Ok(program),
            false => Err(Error::Failed(format!("it does not compile:\n{}", String::from_utf8_lossy(&output.stderr)))),
        }
    }

    /// What `softnic run` is told; `None` runs it without.
    fn options(&self, scratch: &Path) -> Result<Option<Vec<String>>, Error> {
        let words = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
        Ok(match &self.wire {
            Wire::None | Wire::Checked(_) => None,
            Wire::Options(options) => Some(options.clone()),
            Wire::Memory | Wire::Valgrind => words(&["--dev", "mem"]),
            Wire::Slow => words(&["--dev", "mem", "--fault", "delay=300us"]),
            Wire::Selective => words(&["--dev", "mem", "--transport", "sr"]),
            Wire::Repaired => words(&["--dev", "mem", "--transport", "lowar:8,2"]),
            Wire::Sockets => {
                // Of its own: a program that closes nothing leaves its sockets there.
                let folder = scratch.join(format!("{}.wire", self.name));
                create_folder(&folder)?;
                let [a, b] = ["a", "b"].map(|name| folder.join(name).display().to_string());
                let ends = [format!("dgram:{a},{b},ip=10.0.0.1/24"), format!("dgram:{b},{a},ip=10.0.0.2/24")];
                words(&["--dev", &ends[0], "--dev", &ends[1]])
            }
        })
    }

    /// Whether it is the same program once more, on another wire.
    pub(super) fn is_on_another_wire(&self) -> bool {
        matches!(self.wire, Wire::Slow | Wire::Selective | Wire::Repaired | Wire::Sockets)
    }

    /// What it is called here.
    pub(super) fn full_name(&self) -> String {
        match self.wire {
            Wire::Slow => format!("{}/slow", self.name),
            Wire::Selective => format!("{}/over sr", self.name),
            Wire::Repaired => format!("{}/over lowar", self.name),
            Wire::Sockets => format!("{}/sockets", self.name),
            Wire::Valgrind => format!("{}/valgrind", self.name),
            _ => self.name.clone(),
        }
    }

    /// Compiles it and runs it.
    pub(super) fn run(&self, bench: &Bench) -> Result<(), Error> {
        let program = self.compile(&bench.scratch.0)?;
        if let Wire::Checked(kind) = &self.wire {
            return checked::run(kind, &program, bench, |command| {
                let (status, path) = self.execute(command, bench)?;
                Ok((status, fs::read_to_string(&path).map_err(failed(&path))?))
            });
        }
        let command = match self.options(&bench.scratch.0)? {
            None => Command::new(&program),
            Some(options) => {
                let mut command = Command::new(&bench.softnic);
                command.arg("run").args(options).arg("--");
                if self.wire == Wire::Valgrind {
                    command.args(VALGRIND);
                }
                command.arg(&program);
                command
            }
        };
        let (status, path) = self.execute(command, bench)?;
        match status.code() {
            Some(0) if self.name == OFFSETS => compare_layouts(&path),
            Some(0) => Ok(()),
            Some(LEFT_OUT) => {
                let text = fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&text).into_owned();
                Err(Error::Missing(text.lines().next_back().unwrap_or("it does not say why").into()))
            }
            _ => Err(Error::Failed(format!("{status}{}", printed(&path)))),
        }
    }

    /// Runs a command until it ends; what it printed is in the file.
    fn execute(&self, mut command: Command, bench: &Bench) -> Result<(ExitStatus, PathBuf), Error> {
        let path = bench.scratch.0.join(format!("{}.out", self.name));
        let out = fs::File::create(&path).map_err(failed(&path))?;
        let errors = out.try_clone().map_err(failed(&path))?;
        command.stdin(Stdio::null()).stdout(out).stderr(errors).env("TMPDIR", bench.temporary());
        // Where networks in memory are.
        command.env("XDG_RUNTIME_DIR", &bench.scratch.0);
        let mut child = command.spawn().map_err(|e| Error::Failed(format!("it cannot be started: {e}")))?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed(&path))? {
                Some(status) => break status,
                None if begin.elapsed() > self.limit || interrupted() => {
                    // The program dies with its launcher.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Error::Failed(format!("not done after {:?}{}", self.limit, printed(&path))));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if bench.verbose {
            println!("{}", String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()));
        }
        Ok((status, path))
    }
}

/// Holds the layouts of verbs/ against what the headers say.
fn compare_layouts(printed: &Path) -> Result<(), Error> {
    let root = project::root().join("verbs/src");
    let abi = fs::read_dir(root.join("abi")).map_err(failed(&root))?.filter_map(|e| Some(e.ok()?.path()));
    let mut sources = String::new();
    // Structs with functions that take objects lie beside these.
    let typed = ["calls/open.rs", "objects/completion_queue.rs", "objects/queue_pair.rs"].map(|file| root.join(file));
    for path in abi.chain(typed) {
        sources += &fs::read_to_string(&path).map_err(failed(&path))?;
    }
    let printed = fs::read_to_string(printed).map_err(failed(printed))?;
    let agree = layouts::compare(&sources, &printed).map_err(Error::Failed)?;
    println!("verbs: {agree} sizes and offsets of verbs/ are those of the installed headers");
    Ok(())
}

fn printed(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let lines: String = String::from_utf8_lossy(&text).lines().map(|l| format!("\n    {l}")).collect();
    format!("; it printed:{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_program_says_how_it_is_run() {
        let parse = |text: &str| CTest::parse("x", Path::new("x.c"), text);
        let plain = parse("#include <stdio.h>\n// run: none\n").unwrap();
        assert_eq!(plain.wire, Wire::Memory);
        assert_eq!((plain.limit, plain.link.len()), (Duration::from_secs(30), 2));
        let said =
            parse("// What it is for.\n// run: --dev mem --fault loss=0.1\n// link: -ldl\n// seconds: 90\n").unwrap();
        assert!(matches!(said.wire, Wire::Options(options) if options.len() == 4));
        assert_eq!((said.limit, said.link), (Duration::from_secs(90), vec!["-ldl".to_owned()]));
        assert_eq!(parse("// run: none\n").unwrap().wire, Wire::None);
        assert_eq!(parse("// check: leak\n").unwrap().wire, Wire::Checked("leak".into()));
        assert!(parse("// seconds: many\n").is_err());
    }
}
