//! Reading the kernel's structures at the offsets of the running kernel.
//!
//! The loader overrides the global before the verifier sees it. Its section is frozen, so every offset is a constant
//! for the verifier, and code behind an absent one is never checked or run.

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use brink_abi::Plain;
use brink_abi::layout::Layout;

#[unsafe(no_mangle)]
pub static LAYOUT: Global<Layout> = Global::new(Layout::UNKNOWN);

/// The `u32` at a byte offset of [`LAYOUT`], read alone: the whole structure would not fit on the stack.
#[inline(always)]
pub fn constant(offset: usize) -> u32 {
    // SAFETY: `layout!` passes offsets of `u32` fields only, and the global lives as long as the program.
    unsafe {
        (&raw const LAYOUT)
            .byte_add(offset)
            .cast::<u32>()
            .read_volatile()
    }
}

/// One field of [`LAYOUT`].
macro_rules! layout {
    ($field:ident) => {
        $crate::kernel::constant(core::mem::offset_of!(brink_abi::layout::Layout, $field))
    };
}
pub(crate) use layout;

/// The value at `address + offset`, `None` when the address cannot be read.
#[inline(always)]
pub fn read<T: Plain>(address: u64, offset: u32) -> Option<T> {
    let from = address.wrapping_add(u64::from(offset)) as *const T;
    // SAFETY: the helper checks the address and reports a fault; every bit pattern is a `T`.
    unsafe { bpf_probe_read_kernel(from) }.ok()
}

/// The non-null pointer at `address + offset`.
#[inline(always)]
pub fn pointer(address: u64, offset: u32) -> Option<u64> {
    read::<u64>(address, offset).filter(|found| *found != 0)
}

/// Id of the cgroup: the inode number of its directory.
#[inline(always)]
pub fn cgroup_id(cgroup: u64) -> Option<u64> {
    read(pointer(cgroup, layout!(cgroup_kn))?, layout!(kernfs_id))
}

/// The memory controller's state of the cgroup the task is in.
#[inline(always)]
pub fn memory_state(task: u64) -> Option<u64> {
    pointer(
        pointer(task, layout!(task_cgroups))?,
        layout!(css_set_memory),
    )
}

/// Id of the cgroup whose memory controller charges the task.
#[inline(always)]
pub fn memory_cgroup(task: u64) -> Option<u64> {
    cgroup_id(pointer(memory_state(task)?, layout!(css_cgroup))?)
}

/// The root cgroup's memory controller, found from any task's: `css.cgroup.root.cgrp.subsys[memory]`.
#[inline(always)]
pub fn root_memory(task: u64) -> Option<u64> {
    let cgroup = pointer(memory_state(task)?, layout!(css_cgroup))?;
    let root = pointer(cgroup, layout!(cgroup_root))?;
    let state = pointer(
        root,
        layout!(root_cgroup).wrapping_add(layout!(cgroup_memory)),
    )?;
    Some(state.wrapping_sub(u64::from(layout!(memcg_css))))
}

/// The `pglist_data` of NUMA node `id`, through the root memory cgroup; `None` unless the structure bears that id.
#[inline(always)]
pub fn node_data(root_memcg: u64, id: u32) -> Option<u64> {
    let entry = root_memcg.wrapping_add(u64::from(id) << 3);
    let per_node = pointer(entry, layout!(memcg_nodeinfo))?;
    let data = pointer(per_node, layout!(per_node_pgdat))?;
    let found: i32 = read(data, layout!(pgdat_id))?;
    (found as u32 == id).then_some(data)
}

/// The cgroup whose directory the task has open as `fd`.
#[inline(always)]
pub fn opened_cgroup(task: u64, fd: i32) -> Option<u64> {
    let table = pointer(pointer(task, layout!(task_files))?, layout!(files_fdt))?;
    let size: u32 = read(table, layout!(fdtable_max))?;
    if fd < 0 || fd as u32 >= size {
        return None;
    }
    let files = pointer(table, layout!(fdtable_fd))?;
    let file = pointer(files.wrapping_add(u64::from(fd as u32) << 3), 0)?;
    let inode = pointer(file, layout!(file_inode))?;
    let node = pointer(inode, layout!(inode_private))?;
    let cgroup = pointer(node, layout!(kernfs_priv))?;
    // Only a cgroup's directory leads to a cgroup that leads back to it.
    (pointer(cgroup, layout!(cgroup_kn))? == node).then_some(cgroup)
}
