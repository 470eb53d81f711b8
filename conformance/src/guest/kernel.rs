//! The guest's kernel: out of its compressed image, and its modules in the order in which they are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{fs, str};

use super::tree::Tree;
use super::{Error, failed};

/// Decompresses a file with a program of the packages, so that the machine needs none.
fn decompress(file: &Path, program: &str, options: &[&str], host: &Tree) -> Result<Vec<u8>, Error> {
    let mut c = host.command(program)?;
    c.args(options).arg(file).stdin(Stdio::null());
    let out = c.output().map_err(failed(file))?;
    match out.status.success() {
        true => Ok(out.stdout),
        false => Err(Error::Failed(format!("{}: {}", file.display(), String::from_utf8_lossy(&out.stderr).trim()))),
    }
}

fn unxz(file: &Path, host: &Tree) -> Result<Vec<u8>, Error> {
    // Behind a kernel there are four more bytes.
    decompress(file, "usr/bin/xz", &["-dc", "--single-stream"], host)
}

/// The ELF kernel inside a bzImage: QEMU starts that without decompressing it in the slow guest.
pub(super) fn vmlinux(bz_image: &Path, host: &Tree, scratch: &Path) -> Result<Vec<u8>, Error> {
    let image = fs::read(bz_image).map_err(failed(bz_image))?;
    let broken = |what: &str| Error::Failed(format!("{}: {what}", bz_image.display()));
    let word = |at: usize| -> Option<usize> { Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize) };
    // Fields of the boot protocol's header: setup_sects, the magic, payload_offset, payload_length.
    let payload = (|| {
        let setup = match *image.get(0x1f1)? {
            0 => 4,
            n => usize::from(n),
        };
        let from = (setup + 1) * 512 + word(0x248)?;
        (image.get(0x202..0x206)? == b"HdrS").then_some(())?;
        image.get(from..from + word(0x24c)?)
    })();
    let payload = payload.ok_or_else(|| broken("is no kernel image"))?;
    let file = scratch.join("vmlinux.compressed");
    let kernel = if payload.starts_with(b"\xfd7zXZ\0") {
        super::write(&file, payload)?;
        unxz(&file, host)?
    } else if payload.starts_with(b"\x28\xb5\x2f\xfd") {
        // Behind it stands its length, in four bytes that zstd would take for a frame.
        super::write(&file, &payload[..payload.len() - 4])?;
        decompress(&file, "usr/bin/zstd", &["-dcq"], host)?
    } else {
        return Err(broken("is compressed neither with xz nor with zstd"));
    };
    match kernel.starts_with(b"\x7fELF") {
        true => Ok(kernel),
        false => Err(broken("holds no ELF kernel")),
    }
}

/// A loadable module.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// The named modules and all that they need, each after what it needs. One that is built in is left out.
pub(super) fn modules(folder: &Path, names: &[&str], host: &Tree) -> Result<Vec<Module>, Error> {
    let mut files = BTreeMap::new();
    find_modules(folder, &mut files)?;
    let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let builtin: Vec<String> = builtin.lines().filter_map(|l| module_name(Path::new(l))).collect();
    let mut order = Vec::new();
    for name in names {
        visit(name, &files, &builtin, host, &mut order)?;
    }
    Ok(order)
}

fn visit(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    builtin: &[String],
    host: &Tree,
    order: &mut Vec<Module>,
) -> Result<(), Error> {
    if order.iter().any(|m| m.name == name) || builtin.iter().any(|b| b == name) {
        return Ok(());
    }
    let file = files.get(name).ok_or_else(|| Error::Failed(format!("the kernel has no module {name}")))?;
    let data = match file.extension().is_some_and(|e| e == "xz") {
        true => unxz(file, host)?,
        false => fs::read(file).map_err(failed(file))?,
    };
    for needed in depends(&data).split(',').filter(|n| !n.is_empty()) {
        visit(&needed.replace('-', "_"), files, builtin, host, order)?;
    }
    order.push(Module { name: name.to_owned(), data });
    Ok(())
}

/// The names of the modules that a module says it needs.
fn depends(module: &[u8]) -> &str {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|w| w == KEY) else { return "" };
    let value = &module[at + KEY.len()..];
    let end = value.iter().position(|&b| b == 0).unwrap_or(0);
    str::from_utf8(&value[..end]).unwrap_or_default()
}

/// The name that a file of a module stands for: dashes are underscores.
fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz"))?;
    Some(stem.replace('-', "_"))
}

fn find_modules(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            find_modules(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_stands_in_it() {
        assert_eq!(depends(b"license=GPL\0depends=ib_core,ib-uverbs\0name=rdma_rxe\0"), "ib_core,ib-uverbs");
        assert_eq!(depends(b"license=GPL\0depends=\0"), "");
        assert_eq!(depends(b"\x7fELF"), "");
        assert_eq!(module_name(Path::new("kernel/net/crc32-pclmul.ko.xz")).as_deref(), Some("crc32_pclmul"));
        assert_eq!(module_name(Path::new("modules.dep")), None);
    }
}
