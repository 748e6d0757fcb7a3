//! The allocator of the process: mimalloc.
//!
//! The `mimalloc` crate asks for an alignment with every call, which takes
//! mimalloc's longer way: twice the instructions of a plain call, several times
//! as many above a kilobyte. A plain one gives what nearly all types need.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout},
    ffi::c_void,
};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

pub struct Allocator;

/// What every block of at least this size is aligned to.
const NATURAL: usize = 16;

/// Whether a plain call gives a block that is aligned enough: smaller blocks are
/// aligned to 8.
#[inline]
fn is_natural(layout: Layout, size: usize) -> bool {
    layout.align() <= 8 || (layout.align() <= NATURAL && size >= NATURAL)
}

// SAFETY: each block is from mimalloc, which keeps to the contract of malloc, and
// is aligned as the layout wants it: by `is_natural`, or by asking.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        // SAFETY: any size may be asked for, and alignments are powers of two.
        let block =
            unsafe { if is_natural(layout, size) { mi_malloc(size) } else { mi_malloc_aligned(size, layout.align()) } };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        // SAFETY: as for `alloc`.
        let block =
            unsafe { if is_natural(layout, size) { mi_zalloc(size) } else { mi_zalloc_aligned(size, layout.align()) } };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is ours, so it is mimalloc's.
        unsafe { mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let old = block.cast::<c_void>();
        // SAFETY: the block is mimalloc's; else as for `alloc`.
        let block = unsafe {
            if is_natural(layout, size) { mi_realloc(old, size) } else { mi_realloc_aligned(old, size, layout.align()) }
        };
        block.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_keep_what_they_hold() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in (1..300).chain([1023, 1024, 1025, 65_536, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).unwrap_or_else(|_| Layout::new::<u8>());
                // SAFETY: the blocks are used within their sizes and freed once.
                unsafe {
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert_eq!((zeroed.addr() % align, *zeroed, *zeroed.add(size - 1)), (0, 0, 0), "{layout:?}");
                    let block = Allocator.alloc(layout);
                    assert_eq!(block.addr() % align, 0, "{layout:?}");
                    block.write_bytes(7, size);
                    let more = Allocator.realloc(block, layout, size + 99);
                    assert_eq!((more.addr() % align, *more, *more.add(size - 1)), (0, 7, 7), "{layout:?}");
                    Allocator.dealloc(more, layout);
                    Allocator.dealloc(zeroed, layout);
                }
            }
        }
    }
}
