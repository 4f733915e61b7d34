//! Multicast membership: the device knows which queue pairs are in a group, the link which groups
//! it receives for; here both are told.

use engine::{Device, Error, ErrorKind};
use wire::{Gid, Qpn};

use super::Nic;
use crate::mem::ProcessMemory;
use crate::udp::UdpLink;

impl Nic {
    /// Attaches a datagram queue pair to a multicast group, and joins the IP group that carries it
    /// on the device's interface: one for each address family that the device has.
    ///
    /// # Errors
    /// `Invalid` if the GID is no multicast group or the queue pair's service not datagrams,
    /// `Full` if there are too many groups, members or descriptors, `AddressInUse` and `System` as
    /// the system says, `NoDevice` in a child of the process that opened the device.
    pub fn attach_mcast(&self, qp: Qpn, group: Gid) -> engine::Result<()> {
        self.groups(|device, link| {
            let carriers = carriers(link, group);
            for (index, &carrier) in carriers.iter().enumerate() {
                let member = device.is_member(qp, carrier);
                let joined = device.attach_mcast(qp, carrier).and_then(|()| link.join(carrier));
                if let Err(e) = joined {
                    let made = if member { &carriers[..index] } else { &carriers[..=index] };
                    for &carrier in made {
                        let _ = device.detach_mcast(qp, carrier);
                    }
                    link.leave(|group| device.has_group(group));
                    return Err(e);
                }
            }
            Ok(())
        })
    }

    /// Detaches it; the IP groups are left with their last queue pair.
    ///
    /// # Errors
    /// `Invalid` if it is not attached.
    pub fn detach_mcast(&self, qp: Qpn, group: Gid) -> engine::Result<()> {
        self.groups(|device, link| {
            let mut detached = Ok(());
            for carrier in carriers(link, group) {
                detached = detached.and(device.detach_mcast(qp, carrier));
            }
            link.leave(|group| device.has_group(group));
            detached
        })
    }

    /// Leaves the groups whose last queue pair has been destroyed.
    pub fn leave_groups(&self) {
        // Nothing to leave in a child of the process that joined.
        let _ = self.groups(|device, link| {
            link.leave(|group| device.has_group(group));
            Ok(())
        });
    }

    fn groups(
        &self,
        f: impl FnOnce(&mut Device<ProcessMemory>, &mut UdpLink) -> engine::Result<()>,
    ) -> engine::Result<()> {
        let Some(mut state) = self.shared.lock() else {
            return Err(Error::new(
                ErrorKind::NoDevice,
                "this process is a child of the one that opened the device: open it anew",
            ));
        };
        let (device, link) = state.parts();
        let done = f(device, link);
        drop(state);
        // The thread has to wait for other sockets now.
        self.shared.doorbell.signal();
        done
    }
}

/// The GIDs under which the device is to know a group; the group's own if it is none, for the
/// device says what is wrong with it.
fn carriers(link: &UdpLink, group: Gid) -> Vec<Gid> {
    if group.is_multicast() { link.groups_of(group) } else { vec![group] }
}
