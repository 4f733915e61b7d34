//! The store: shards of slots in registered memory, and how a client comes to a shard. A shard's
//! program does nothing once the connection stands; clients do everything by one-sided operations.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use crocevia::{
    Access, ConnectOptions, Context, Cq, Endpoint, Mr, Pd, Qp, QpOptions, RKey, Remote,
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Bytes of a value. All its words hold the same number, so that half of one and half of another
/// would show.
pub(crate) const VALUE: usize = 64;
/// A slot: the version word, then the value.
pub(crate) const SLOT: usize = 8 + VALUE;

/// The rights that clients have, on the region and on the queue pair.
const RIGHTS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

/// One shard: `slots` accounts in one region.
pub(crate) struct Shard {
    context: Context,
    pd: Pd,
    memory: Mr,
    slots: usize,
}

impl Shard {
    /// A shard on a device, every slot at version 1 with the same balance.
    pub(crate) fn new(context: Context, slots: usize, balance: u64) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let memory = pd.alloc(slots * SLOT, RIGHTS)?;
        for slot in 0..slots {
            memory.region().store_u64(slot * SLOT, 1);
            for word in 1..SLOT / 8 {
                memory.region().store_u64(slot * SLOT + 8 * word, balance);
            }
        }
        Ok(Self { context, pd, memory, slots })
    }

    /// Serves clients until the process ends; each keeps its TCP connection while it works.
    pub(crate) fn serve(self, listener: &TcpListener) -> Result<()> {
        let shard = Arc::new(self);
        for stream in listener.incoming() {
            let (shard, stream) = (Arc::clone(&shard), stream?);
            std::thread::spawn(move || {
                if let Err(error) = shard.attend(&stream) {
                    eprintln!("a client was lost: {error}");
                }
            });
        }
        Ok(())
    }

    /// Connects one client and keeps its queue pair until the client goes.
    fn attend(&self, stream: &TcpStream) -> Result<()> {
        let cq = self.context.create_cq(1, None)?;
        let qp = self.pd.create_qp(&QpOptions::rc(&cq))?;
        let mut lines = BufReader::new(stream).lines();
        let mut line = || lines.next().transpose().map(Option::unwrap_or_default);
        let place = self.memory.remote(0);
        let (endpoint, rkey) = (qp.endpoint()?, place.rkey.get());
        writeln!(&*stream, "{endpoint} {} {rkey} {}", place.addr, self.slots)?;
        let peer: Endpoint = line()?.parse()?;
        qp.connect(&peer, &ConnectOptions { access: RIGHTS, ..Default::default() })?;
        writeln!(&*stream, "ready")?;
        // The client closes the connection when it is done.
        line()?;
        Ok(())
    }
}

/// A client's way to a shard.
pub(crate) struct Link {
    pub(crate) qp: Qp,
    place: Remote,
    pub(crate) slots: usize,
    /// Held open: the shard drops its queue pair when it closes.
    _stream: TcpStream,
}

impl Link {
    pub(crate) fn new(shard: SocketAddr, pd: &Pd, cq: &Cq) -> Result<Self> {
        let stream = TcpStream::connect(shard)?;
        let qp = pd.create_qp(&QpOptions::rc(cq))?;
        let mut lines = BufReader::new(&stream).lines();
        let mut line = || lines.next().transpose().map(Option::unwrap_or_default);
        let hello = line()?;
        let [endpoint, addr, rkey, slots] = hello.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("the shard answered {hello:?}").into());
        };
        let place = Remote { addr: addr.parse()?, rkey: RKey::new(rkey.parse()?) };
        let slots = slots.parse()?;
        writeln!(&stream, "{}", qp.endpoint()?)?;
        let access = Access::empty();
        qp.connect(&endpoint.parse()?, &ConnectOptions { access, ..Default::default() })?;
        line()?;
        Ok(Self { qp, place, slots, _stream: stream })
    }

    /// A byte of the shard's memory.
    pub(crate) fn at(&self, offset: usize) -> Remote {
        Remote { addr: self.place.addr + offset as u64, rkey: self.place.rkey }
    }
}
