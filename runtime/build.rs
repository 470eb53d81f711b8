//! With the feature `dpdk`: compiles the shim, and says which parts of DPDK are linked, statically.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // See `memif_free_regions` in the shim. What links the crate into a program says the same in its own build script.
    #[cfg(feature = "dpdk")]
    println!("cargo::rustc-link-arg=-Wl,--wrap=memif_free_regions");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Drivers that are linked, and what they share. None of Mellanox: they bring libibverbs along, and we are one.
    const DRIVERS: [&str; 20] = [
        "bus_pci",
        "bus_vdev",
        "common_iavf",
        "mempool_ring",
        "net_af_packet",
        "net_af_xdp",
        "net_e1000",
        "net_ena",
        "net_i40e",
        "net_iavf",
        "net_ice",
        "net_igc",
        "net_ixgbe",
        "net_memif",
        "net_null",
        "net_tap",
        "net_vhost",
        "net_virtio",
        "net_vmxnet3",
        "net_ring",
    ];
    /// Kinds of drivers: what begins so is linked only where it is named above.
    const KINDS: [&str; 15] = [
        "baseband_",
        "bus_",
        "common_",
        "compress_",
        "crypto_",
        "dma_",
        "event_",
        "gpu_",
        "mempool_",
        "ml_",
        "net_",
        "power_",
        "raw_",
        "regex_",
        "vdpa_",
    ];
    /// Libraries with constructors that nothing refers to.
    const WHOLE: [&str; 2] = ["hash", "ethdev"];
    /// Libraries of the system that the chosen drivers may need. The linker leaves out those that they do not.
    const SYSTEM: [&str; 13] =
        ["archive", "atomic", "bpf", "bsd", "dl", "elf", "fdt", "m", "md", "numa", "pthread", "xdp", "z"];

    /// Archives that open descriptors: they are linked from copies in which these functions are those of `descriptors.h`.
    const OPENERS: [&str; 10] = [
        "bus_pci",
        "eal",
        "net_af_packet",
        "net_af_xdp",
        "net_memif",
        "net_tap",
        "net_vhost",
        "net_virtio",
        "telemetry",
        "vhost",
    ];
    const OPENING: [&str; 13] = [
        "accept",
        "dup",
        "epoll_create",
        "epoll_create1",
        "eventfd",
        "memfd_create",
        "mkstemp64",
        "open64",
        "openat64",
        "pipe",
        "recvmsg",
        "socket",
        "timerfd_create",
    ];

    pub(super) fn build() {
        println!("cargo::rerun-if-changed=src/dpdk/shim.c");
        println!("cargo::rerun-if-changed=src/dpdk/descriptors.h");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
        let mut shim = cc::Build::new();
        // The crate pkg-config drops `-include` and `-march`, without which the headers do not fit the libraries.
        for flag in pkg_config(&["--cflags"]) {
            shim.flag(flag);
        }
        shim.file("src/dpdk/shim.c").define("_GNU_SOURCE", None).define("ALLOW_EXPERIMENTAL_API", None).opt_level(3);
        shim.compile("softnic_dpdk_shim");
        let words = pkg_config(&["--static", "--libs"]);
        let copies = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
        let folder: PathBuf = pkg_config(&["--variable=libdir"]).concat().into();
        for folder in [&copies, &folder] {
            println!("cargo::rustc-link-search=native={}", folder.display());
        }
        let archives = words.iter().filter_map(|word| word.strip_prefix("-l:librte_")?.strip_suffix(".a"));
        let has = |driver: &&&str| archives.clone().any(|name| name == **driver);
        let drivers: Vec<&str> = DRIVERS.iter().filter(has).filter(|name| name.starts_with("net_")).copied().collect();
        println!("cargo::rustc-env=SOFTNIC_DPDK_DRIVERS={}", drivers.join(" "));
        for name in
            archives.clone().filter(|name| !KINDS.iter().any(|kind| name.starts_with(kind)) || DRIVERS.contains(name))
        {
            let whole = DRIVERS.contains(&name) || WHOLE.contains(&name);
            let kind = if whole { "static:+whole-archive,-bundle" } else { "static:-bundle" };
            let ours = if OPENERS.contains(&name) { copy(name, &folder, &copies) } else { "" };
            println!("cargo::rustc-link-lib={kind}={ours}rte_{name}");
        }
        let mut linked = Vec::new();
        for name in words.iter().filter_map(|word| word.strip_prefix("-l")) {
            if SYSTEM.contains(&name) && !linked.contains(&name) {
                println!("cargo::rustc-link-lib=dylib={name}");
                linked.push(name);
            }
        }
    }

    /// Copies an archive, with our functions in place of those that open descriptors; what its name begins with then.
    fn copy(name: &str, from: &Path, to: &Path) -> &'static str {
        let mut objcopy = Command::new("objcopy");
        for function in OPENING {
            objcopy.arg(format!("--redefine-sym={function}=softnic_{function}"));
        }
        objcopy.arg(from.join(format!("librte_{name}.a"))).arg(to.join(format!("libsoftnic_rte_{name}.a")));
        if !objcopy.status().is_ok_and(|status| status.success()) {
            println!(
                "cargo::error=the feature `dpdk` needs objcopy, which comes with the linker: apt-get install binutils"
            );
            std::process::exit(1);
        }
        "softnic_"
    }

    /// What pkg-config says of DPDK, word by word. Without it the build ends: there is nothing to put in its place.
    fn pkg_config(question: &[&str]) -> Vec<String> {
        let said = Command::new("pkg-config").args(question).arg("libdpdk").output();
        match said {
            Ok(said) if said.status.success() => {
                String::from_utf8_lossy(&said.stdout).split_whitespace().map(Into::into).collect()
            }
            _ => {
                println!(
                    "cargo::error=the feature `dpdk` needs DPDK's development files: apt-get install libdpdk-dev pkg-config"
                );
                std::process::exit(1);
            }
        }
    }
}
