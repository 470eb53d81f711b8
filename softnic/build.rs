//! With the feature `dpdk`: what the linker must know beyond the libraries.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The memif driver's own function waits for whoever polls: `memif_free_regions` in runtime/src/dpdk/shim.c.
    #[cfg(feature = "dpdk")]
    println!("cargo::rustc-link-arg=-Wl,--wrap=memif_free_regions");
}
