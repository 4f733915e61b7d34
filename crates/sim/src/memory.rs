//! The memory of simulated hosts: only lengths, for runs that carry no payload.

use engine::{AtomicOp, HostMemory, MemoryFault, Payload};

/// Memory that takes everything and keeps nothing.
#[derive(Debug, Default)]
pub(crate) struct Lengths;

impl HostMemory for Lengths {
    fn write(&mut self, _: u64, _: Payload<'_>) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn atomic(&mut self, _: u64, _: AtomicOp) -> Result<u64, MemoryFault> {
        Ok(0)
    }
}
