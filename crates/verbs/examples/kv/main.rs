//! A key-value store that is used by one-sided operations only: clients READ slots, lock and
//! validate with compare-and-swap, and WRITE values; transactions span keys and shards (see
//! `txn.rs`). The program transfers money between accounts with several clients at once, and then
//! proves from their histories that the result is that of some serial order (see `check.rs`).
//!
//! ```text
//! cargo run --release --example kv                                  # all here, on loopback
//! cargo run --release --example kv -- serve                         # a shard, on each host ...
//! cargo run --release --example kv -- client 192.0.2.1 192.0.2.2    # ... and the clients
//! cargo run --release --example kv -- --break validation            # watch the checker find it
//! ```

mod check;
mod store;
mod txn;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use check::{Record, State};
use crocevia::Context;
use store::{Result, Shard};
use txn::{Abort, Broken, Client, MAX_KEYS};

const USAGE: &str = "\
usage: kv [--pair | serve | client HOST...] [options]
  --addr A       address or interface of this end's RoCE device (default: the first device;
                 with --pair 127.0.0.84, .85 and .86)
  --port P       TCP port on which clients find a shard (default 18517)
  --accounts N   accounts of a shard (default 8)
  --balance N    what each holds in the beginning (default 1000)
  --clients N    concurrent clients (default 4)
  --txns N       transactions of each (default 2000)
  --break WHAT   leave out a step: locks, validation";

struct Options {
    hosts: Vec<String>,
    addr: Option<String>,
    port: u16,
    accounts: usize,
    balance: u64,
    clients: u64,
    txns: usize,
    broken: Broken,
}

fn main() -> Result<()> {
    let (role, options) = arguments(std::env::args().skip(1))?;
    let open = |default: Option<&str>| match options.addr.as_deref().or(default) {
        Some(addr) => Context::open_addr(addr),
        None => Context::open_default(),
    };
    match role.as_str() {
        "serve" => {
            let listener = TcpListener::bind(("0.0.0.0", options.port))?;
            let shard = Shard::new(open(None)?, options.accounts, options.balance)?;
            eprintln!("{} accounts, for clients on TCP port {}", options.accounts, options.port);
            shard.serve(&listener)
        }
        "client" => {
            let find = |host: &String| {
                let mut found = (host.as_str(), options.port).to_socket_addrs()?;
                found.next().ok_or_else(|| format!("{host} has no address").into())
            };
            let shards = options.hosts.iter().map(find).collect::<Result<Vec<_>>>()?;
            clients(&open(None)?, &shards, &options)
        }
        _ => {
            let mut shards = Vec::new();
            for addr in ["127.0.0.84", "127.0.0.85"] {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                shards.push(listener.local_addr()?);
                let context = Context::open_addr(addr)?;
                let shard = Shard::new(context, options.accounts, options.balance)?;
                std::thread::spawn(move || shard.serve(&listener));
            }
            clients(&open(Some("127.0.0.86"))?, &shards, &options)
        }
    }
}

/// Runs the clients and judges what they did.
fn clients(context: &Context, shards: &[SocketAddr], options: &Options) -> Result<()> {
    let mut auditor = Client::new(context, shards, 0, Broken::Nothing)?;
    if auditor.keys() > MAX_KEYS {
        return Err(format!("{} accounts: at most {MAX_KEYS}", auditor.keys()).into());
    }
    let first = whole(&mut auditor)?;
    let start = Instant::now();
    let threads: Vec<_> = (1..=options.clients)
        .map(|owner| {
            let client = Client::new(context, shards, owner, options.broken)?;
            let txns = options.txns;
            Ok(std::thread::spawn(move || transfers(client, owner, txns)))
        })
        .collect::<Result<_>>()?;
    let (mut history, mut aborts) = (Vec::new(), 0);
    for thread in threads {
        let (records, aborted) = thread.join().map_err(|_| "a client's thread panicked")??;
        history.extend(records);
        aborts += aborted;
    }
    let time = start.elapsed().as_secs_f64();
    let last = whole(&mut auditor)?;
    let sum = |state: &State| state.values().map(|(_, balance)| balance).sum::<u64>();
    let out = &mut std::io::stdout();
    writeln!(
        out,
        "{} transactions committed in {time:.2} s ({:.0}/s), {aborts} aborted and tried again",
        history.len(),
        history.len() as f64 / time
    )?;
    writeln!(out, "money: {} before, {} after", sum(&first), sum(&last))?;
    let verdict = check::serialisable(&history, &first, &last)?;
    writeln!(
        out,
        "serialisable: {} relations between transactions have no cycle, and a serial replay reads \
         and writes the same",
        verdict.relations
    )?;
    if sum(&first) != sum(&last) {
        return Err("money was made or lost".into());
    }
    Ok(())
}

/// All accounts, in one transaction.
fn whole(client: &mut Client) -> Result<State> {
    let keys: Vec<usize> = (0..client.keys()).collect();
    loop {
        match audit(client, &keys) {
            Ok(record) => {
                return Ok(record.reads.iter().map(|&(k, v, number)| (k, (v, number))).collect());
            }
            Err(Abort::Conflict) => {}
            Err(Abort::Failed(error)) => return Err(error),
        }
    }
}

/// Reads accounts, a few at a time, as a program does that decides on the way what to read next.
fn audit(client: &mut Client, keys: &[usize]) -> std::result::Result<Record, Abort> {
    let mut txn = client.begin();
    for few in keys.chunks(4) {
        txn.read(few)?;
    }
    txn.commit()
}

/// One client: moves money between accounts, and looks at all of them now and then.
fn transfers(mut client: Client, seed: u64, txns: usize) -> Result<(Vec<Record>, usize)> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let (mut history, mut aborts) = (Vec::with_capacity(txns), 0);
    let mut backoff = 0;
    while history.len() < txns {
        let outcome = if history.len() % 10 == 9 {
            let keys: Vec<usize> = (0..client.keys()).collect();
            audit(&mut client, &keys)
        } else {
            transfer(&mut client, &mut random)
        };
        match outcome {
            Ok(record) => {
                history.push(record);
                backoff = 0;
            }
            Err(Abort::Conflict) => {
                aborts += 1;
                // Two that keep meeting are parted by chance.
                backoff = (backoff + 1).min(6);
                std::thread::sleep(Duration::from_micros(random.below(10 << backoff)));
            }
            Err(Abort::Failed(error)) => return Err(error),
        }
    }
    Ok((history, aborts))
}

/// Takes money from one account and spreads it over one to three others.
fn transfer(client: &mut Client, random: &mut Random) -> std::result::Result<Record, Abort> {
    let accounts = client.keys();
    let mut keys: Vec<usize> = Vec::new();
    let wanted = (2 + random.below(3) as usize).min(accounts);
    while keys.len() < wanted {
        let key = random.below(accounts as u64) as usize;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut txn = client.begin();
    let mut balances = txn.read(&keys)?;
    let receivers = (keys.len() - 1) as u64;
    // A torn read may show any number: the commit refuses it, the arithmetic must bear it.
    let amount = random.below(balances[0] / receivers.max(1) + 1);
    balances[0] -= amount * receivers;
    for balance in &mut balances[1..] {
        *balance = balance.wrapping_add(amount);
    }
    for (key, balance) in keys.into_iter().zip(balances) {
        txn.write(key, balance);
    }
    txn.commit()
}

/// A small generator (xorshift64*); reproducible, which is all that is asked of it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound.max(1)
    }
}

fn arguments(mut args: impl Iterator<Item = String>) -> Result<(String, Options)> {
    let mut role = String::from("--pair");
    let mut options = Options {
        hosts: Vec::new(),
        addr: None,
        port: 18517,
        accounts: 8,
        balance: 1000,
        clients: 4,
        txns: 2000,
        broken: Broken::Nothing,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--pair" | "serve" | "client" => role = arg,
            "--addr" => options.addr = Some(value()?),
            "--port" => options.port = value()?.parse()?,
            "--accounts" => options.accounts = value()?.parse::<usize>()?.max(1),
            "--balance" => options.balance = value()?.parse()?,
            "--clients" => options.clients = value()?.parse::<u64>()?.max(1),
            "--txns" => options.txns = value()?.parse()?,
            "--break" => {
                options.broken = match value()?.as_str() {
                    "locks" => Broken::Locks,
                    "validation" => Broken::Validation,
                    other => return Err(format!("nothing to break named {other}\n{USAGE}").into()),
                }
            }
            host if role == "client" && !host.starts_with('-') => options.hosts.push(arg),
            _ => return Err(format!("unknown argument {arg}\n{USAGE}").into()),
        }
    }
    if role == "client" && options.hosts.is_empty() {
        return Err(format!("no shard's host is given\n{USAGE}").into());
    }
    Ok((role, options))
}
