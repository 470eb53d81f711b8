//! The two guests: which packages each is made from, and which modules its kernel loads.

/// What an image is made from.
#[derive(Debug, Hash)]
pub(crate) struct Recipe {
    /// Suites that QEMU and the kernel come from; the machine's own where there are none.
    pub(super) suites: &'static [&'static str],
    /// What runs on this machine.
    pub(super) host_packages: &'static [&'static str],
    /// What runs in the guest.
    pub(super) guest_packages: &'static [&'static str],
    /// The package that depends on the newest kernel.
    pub(super) kernel_package: &'static str,
    /// The packages that this kernel is in: what their names begin with, before its version.
    pub(super) kernel_parts: &'static [&'static str],
    /// Modules to load, in order, each after what it needs.
    pub(super) modules: &'static [&'static str],
}

/// Linux Soft-RoCE as the machine's own suites have it.
pub(crate) const SOFT_ROCE: Recipe = Recipe {
    suites: &[],
    host_packages: &["qemu-system-x86", "xz-utils"],
    guest_packages: &[
        "busybox-static",
        "iproute2",
        "ibverbs-providers",
        "ibverbs-utils",
        "perftest",
        "python3",
        "python3-pyverbs",
        "rdmacm-utils",
        "util-linux",
    ],
    kernel_package: "linux-image-amd64",
    kernel_parts: &["linux-image-"],
    modules: &[
        "virtio_pci",
        "virtio_net",
        "virtio_console",
        "virtio_rng",
        "crc32_generic",
        "ib_uverbs",
        "rdma_rxe",
        "rdma_ucm",
        "veth",
        "8021q",
    ],
};

/// Emulated PCI NICs whose drivers have AF_XDP in zero-copy: igb has it since Linux 6.14, and QEMU has the NIC since 8.0.
pub(crate) const NICS: Recipe = Recipe {
    suites: &["trixie", "trixie-backports"],
    host_packages: &["qemu-system-x86", "xz-utils", "zstd"],
    guest_packages: &[
        "busybox-static",
        "ethtool",
        "iproute2",
        "ibverbs-providers",
        "perftest",
        "python3",
        "python3-pyverbs",
        "rdmacm-utils",
        "util-linux",
    ],
    kernel_package: "linux-image-amd64/trixie-backports",
    kernel_parts: &["linux-base-", "linux-binary-", "linux-modules-"],
    // Interfaces are numbered in this order.
    modules: &[
        "igb",
        "virtio_pci",
        "virtio_net",
        "e1000e",
        "vmxnet3",
        "virtio_console",
        "virtio_rng",
        "ib_uverbs",
        "rdma_rxe",
        "rdma_ucm",
        "veth",
        "tun",
        "vfio_iommu_type1",
        "vfio_pci",
        "uio_pci_generic",
    ],
};
