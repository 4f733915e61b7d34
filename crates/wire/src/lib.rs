//! The wire formats of RDMA over Converged Ethernet and of InfiniBand: bytes to meaning and back,
//! total in both directions. Any bytes give a packet, opaque bytes, or a named [`DropReason`]; any
//! packet gives bytes or a named [`EmitError`]. No clock, no socket, no state.
//!
//! Three ways in, by how much of a packet a caller has:
//! - [`packet`] is the meaning itself, what an engine takes and gives;
//! - [`transport`] with [`icrc`] and [`flow`] is for a link whose network layer a socket provides:
//!   from the base transport header to the pad, without a copy or an allocation;
//! - [`frame`], [`infiniband`] and [`vxlan`] are whole frames, for captures and raw links. They
//!   keep every bit, so that a captured packet can be written again as it was.
//!
//! [`mad`] is what travels to the general services queue pair, [`mac_control`] what stops a link;
//! [`pcapng`] and [`pretty`] show packets to people.
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
pub mod pcapng;
pub mod pretty;
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
