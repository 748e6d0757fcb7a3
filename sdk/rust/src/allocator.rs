//! The allocator of plugins.
//!
//! A hook makes a handful of small blocks and frees them at once: one for each
//! string that the gateway hands over, one for each list that it gets. The
//! general allocator takes some 250 instructions over each, several times what
//! the hook itself does. So freed small blocks are kept at hand here, by size.

#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// Sizes are rounded up to multiples of this.
const STEP: usize = 16;
/// How many sizes there are; larger blocks go to the general allocator.
const SIZES: usize = 32;
/// How many blocks of one size are kept, so that what a hook once took in small
/// pieces can be had in large ones again: 264 KiB at most in all.
const KEPT: u32 = 32;
/// What the general allocator gives without being asked.
const ALIGN: usize = 8;

/// Keeps small blocks for their next use.
pub struct Recycling {
    shelves: [Shelf; SIZES],
}

/// Free blocks of one size, each holding the address of the next.
struct Shelf {
    first: Cell<*mut u8>,
    len: Cell<u32>,
}

impl Recycling {
    /// One that keeps nothing yet.
    pub const fn new() -> Self {
        Self { shelves: [const { Shelf { first: Cell::new(ptr::null_mut()), len: Cell::new(0) } }; SIZES] }
    }

    /// The shelf for blocks of that layout.
    #[inline(always)]
    fn shelf(&self, layout: Layout) -> Option<&Shelf> {
        // A size of 0 finds none either.
        let place = layout.size().wrapping_sub(1) / STEP;
        self.shelves.get(place).filter(|_| layout.align() <= ALIGN)
    }
}

/// What a block on the shelf of that layout is made of.
#[inline(always)]
fn block(layout: Layout) -> Layout {
    // SAFETY: sizes that have a shelf are far below the largest there can be.
    unsafe { Layout::from_size_align_unchecked(layout.size().next_multiple_of(STEP), ALIGN) }
}

impl Default for Recycling {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: a plugin has one thread; `export!` makes this the allocator for
// WebAssembly without threads only.
unsafe impl Sync for Recycling {}

// SAFETY: a block that has a shelf is `System`'s, made of the layout that `block`
// says, which is no smaller and no less aligned than what was asked for; others
// are `System`'s as they are. `alloc` and `dealloc` see the same layout for a
// block, so the same shelf. A block is on its shelf from `dealloc` to the next
// `alloc` only, when nobody else uses it, and is large and aligned enough to hold
// an address.
unsafe impl GlobalAlloc for Recycling {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(shelf) = self.shelf(layout) else {
            return unsafe { System.alloc(layout) };
        };
        let first = shelf.first.get();
        if first.is_null() {
            return unsafe { System.alloc(block(layout)) };
        }
        shelf.first.set(unsafe { first.cast::<*mut u8>().read() });
        shelf.len.set(shelf.len.get() - 1);
        first
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match self.shelf(layout) {
            Some(shelf) if shelf.len.get() < KEPT => {
                unsafe { address.cast::<*mut u8>().write(shelf.first.get()) };
                shelf.first.set(address);
                shelf.len.set(shelf.len.get() + 1);
            }
            Some(_) => unsafe { System.dealloc(address, block(layout)) },
            None => unsafe { System.dealloc(address, layout) },
        }
    }

    #[inline]
    unsafe fn realloc(&self, address: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller warrants that the new size makes a layout.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (self.shelf(layout), self.shelf(new_layout)) {
            (None, None) => unsafe { System.realloc(address, layout, new_size) },
            (Some(old), Some(new)) if ptr::eq(old, new) => address,
            _ => unsafe {
                let moved = self.alloc(new_layout);
                if !moved.is_null() {
                    ptr::copy_nonoverlapping(address, moved, layout.size().min(new_size));
                    self.dealloc(address, layout);
                }
                moved
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 1).unwrap()
    }

    #[test]
    fn a_freed_block_serves_again() {
        let allocator = Recycling::new();
        unsafe {
            let first = allocator.alloc(layout(17));
            allocator.dealloc(first, layout(17));
            assert_eq!(allocator.alloc(layout(32)), first);
            assert_ne!(allocator.alloc(layout(33)), first);
        }
    }

    #[test]
    fn growing_keeps_what_is_there() {
        let allocator = Recycling::new();
        for end in [8, 24, 513, 5000] {
            unsafe {
                let mut address = allocator.alloc(layout(8));
                address.copy_from(b"weir-sdk".as_ptr(), 8);
                let mut size = 8;
                while size < end {
                    address = allocator.realloc(address, layout(size), size + 7);
                    size += 7;
                }
                address = allocator.realloc(address, layout(size), 8);
                assert_eq!(std::slice::from_raw_parts(address, 8), b"weir-sdk");
                allocator.dealloc(address, layout(8));
            }
        }
    }

    #[test]
    fn a_shelf_is_bounded() {
        let allocator = Recycling::new();
        unsafe {
            let blocks: Vec<_> = (0..100).map(|_| allocator.alloc(layout(64))).collect();
            blocks.into_iter().for_each(|block| allocator.dealloc(block, layout(64)));
        }
        assert_eq!(allocator.shelves[3].len.get(), KEPT);
    }

    #[test]
    fn other_alignments_are_not_kept() {
        let allocator = Recycling::new();
        let layout = Layout::from_size_align(64, 64).unwrap();
        unsafe {
            let block = allocator.alloc(layout);
            assert!(block.addr().is_multiple_of(64));
            allocator.dealloc(block, layout);
        }
        assert!(allocator.shelves.iter().all(|shelf| shelf.len.get() == 0));
    }
}
