//! `crocevia perf`: bandwidth and latency in perftest's terms. Here: the two ends from their first
//! word to their last, and `--pair`. What goes over the wire is in `bw` and `lat`.

mod bw;
pub(crate) mod exchange;
mod lat;
pub(crate) mod pair;
mod pattern;
pub(crate) mod plan;
pub(crate) mod report;
mod rival;
mod session;
pub(crate) mod versus;

use std::net::IpAddr;

use exchange::{Control, Message};
use plan::{Plan, Role};
use report::{Checked, Outcome, Row};
use session::{Session, Side};
use versus::Table;

use crate::error::{Failure, Result};
use crate::render;

/// Measures, or helps a client to.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    match &plan.role {
        Role::Server => server(plan),
        Role::Client(peer) => client(plan, peer, plan.port),
        Role::Pair => pair::run(plan),
    }
}

/// Waits for one client and serves it.
fn server(plan: &Plan) -> Result<()> {
    // An address is listened on alone; an interface's name says nothing about TCP.
    let addr = plan.addr.as_deref().and_then(|addr| addr.parse::<IpAddr>().ok());
    // Before anybody is asked to come: the session joins the NIC of this process.
    let _open = session::chosen(plan)?;
    let listener = exchange::listen(addr, plan.port)?;
    if plan.announce {
        let address = listener
            .local_addr()
            .map_err(|error| Failure::failed(format!("the listener has no address: {error}")))?;
        render::text(&format!("{}{address}\n", pair::ANNOUNCEMENT))?;
    } else if !plan.json {
        render::text("\n* Waiting for client to connect... *\n")?;
    }
    let control = Control::accept(&listener, plan.announce)?;
    drop(listener);
    let mut session = Session::open(control, plan, Side::Server)?;
    let served = serve(&mut session, plan);
    tell(&mut session, served)
}

fn serve(session: &mut Session, plan: &Plan) -> Result<()> {
    let quiet = plan.json || plan.announce;
    if !quiet {
        report::header(&session.agreed, &session.identity)?;
    }
    let (mut rows, mut vs) = (Vec::new(), None);
    loop {
        match session.control.recv()? {
            Message::Begin(round) if session.agreed.test.is_latency() => lat::serve(session, round),
            Message::Begin(round) => bw::serve(session, round),
            Message::Row(row) => {
                if !quiet {
                    report::row(&row, session.agreed.connection)?;
                }
                rows.push(row);
                Ok(())
            }
            Message::Bout(bout) => rival::serve(session, bout),
            Message::Table(table) => {
                vs = Some(table);
                Ok(())
            }
            Message::Finished => break,
            other => Err(session.control.unexpected(&other, "the next size")),
        }?;
    }
    let outcome = outcome(session, rows, None, vs);
    match (plan.announce, plan.json) {
        (true, _) => Ok(()),
        (false, true) => report::json(&outcome),
        (false, false) => report::footer(&outcome),
    }
}

/// Connects to a server and measures.
fn client(plan: &Plan, peer: &str, port: u16) -> Result<()> {
    let control = Control::connect(peer, port)?;
    let mut session = Session::open(control, plan, Side::Client)?;
    let measured = measure(&mut session, plan);
    tell(&mut session, measured)
}

fn measure(session: &mut Session, plan: &Plan) -> Result<()> {
    if !plan.json {
        report::header(&session.agreed, &session.identity)?;
    }
    let mut rows = Vec::new();
    let mut total = Checked::default();
    let mut vs = session.agreed.vs.as_ref().map(|_| Table::new(session.agreed.test.is_latency()));
    for size in session.agreed.sizes.clone() {
        let (row, checked) = match (session.agreed.vs.clone(), &mut vs) {
            (Some(asked), Some(table)) => versus::measure(session, size, &asked, rdma, table)?,
            _ => rdma(session, size)?,
        };
        total.messages += checked.messages;
        total.bytes += checked.bytes;
        session.control.send(&Message::Row(row.clone()))?;
        if !plan.json {
            report::row(&row, session.agreed.connection)?;
        }
        rows.push(row);
    }
    if let Some(table) = &vs {
        session.control.send(&Message::Table(table.clone()))?;
    }
    session.control.send(&Message::Finished)?;
    let outcome = outcome(session, rows, session.agreed.check.then_some(total), vs);
    if plan.json { report::json(&outcome) } else { report::footer(&outcome) }
}

/// One size of the RDMA test.
fn rdma(session: &mut Session, size: u32) -> Result<(Row, Checked)> {
    if session.agreed.test.is_latency() {
        let (row, checked) = lat::measure(session, size)?;
        return Ok((Row::Lat(row), checked));
    }
    let (row, checked) = bw::measure(session, size)?;
    Ok((Row::Bw(row), checked))
}

fn outcome(
    session: &Session,
    rows: Vec<Row>,
    checked: Option<Checked>,
    vs: Option<Table>,
) -> Outcome {
    let (agreed, identity) = (session.agreed.clone(), session.identity.clone());
    Outcome { agreed, identity, rows, checked, vs }
}

/// A failure of this end is told to the other, so that its person sees the reason too. What the
/// device has counted often says more than the failure does.
fn tell(session: &mut Session, result: Result<()>) -> Result<()> {
    if let Err(failure) = &result {
        let _ = session.control.send(&Message::Failed(failure.to_string()));
        if let Some(counted) = session.counters() {
            render::note(&format!("the device has counted {counted}"));
        }
    }
    result
}
