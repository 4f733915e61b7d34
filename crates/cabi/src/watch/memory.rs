//! The program's memory for the checker, read as the device reads it: memory that has gone is an
//! answer and not a fault.

use check::Memory;
use crocevia::Region;

/// This process's memory.
pub(super) struct OwnMemory;

impl Memory for OwnMemory {
    fn read(&self, addr: u64, out: &mut [u8]) -> bool {
        // SAFETY: no device is told of this region, and it is only read, by a copy that tells of
        // memory which is not there; nobody minds what is read of memory that is being written.
        let region = unsafe { Region::from_raw(addr as *mut u8, out.len()) };
        region.try_read(0, out).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_and_what_is_not_is_no_fault() {
        let here = [1_u8, 2, 3];
        let mut out = [0; 3];
        assert!(OwnMemory.read(here.as_ptr() as u64, &mut out));
        assert_eq!(out, here);
        assert!(!OwnMemory.read(16, &mut out));
        assert!(OwnMemory.read(16, &mut []));
    }
}
