//! The wire formats of RDMA over Converged Ethernet.
#![forbid(unsafe_code)]

pub mod aeth;
pub mod checksum;
pub mod content;
pub mod error;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod icrc;
pub mod ids;
pub mod infiniband;
pub mod ip;
pub mod mac_control;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod transport;
pub mod units;
pub mod vcrc;
pub mod vxlan;

pub use error::{DropReason, EmitError, Layer};
pub use ids::{Gid, LKey, Mac, Msn, Mtu, PKey, Psn, QKey, Qpn, RKey, SrqNum};
pub use opcode::{HeaderSet, Opcode, Operation, Position, Service};
pub use packet::{
    Aeth, AtomicEth, Bth, Deth, Encapsulation, Extensions, Feth, NakCode, Packet, Path, Reth,
    Syndrome,
};
pub use transport::{ROCE_PORT, Transport};
pub use units::{Instant, Rate, Span};
