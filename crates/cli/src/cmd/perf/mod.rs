//! `crocevia perf`: bandwidth and latency in perftest's terms. Here: the two ends from their first
//! word to their last, and `--pair`. What goes over the wire is in `bw` and `lat`.

mod bw;
pub(crate) mod exchange;
mod lat;
pub(crate) mod pair;
mod pattern;
pub(crate) mod plan;
pub(crate) mod report;
mod session;

use std::net::IpAddr;

use exchange::{Control, Message};
use plan::{Plan, Role};
use report::{Checked, Outcome, Row};
use session::{Session, Side};

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
    let mut rows = Vec::new();
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
            Message::Finished => break,
            other => Err(session.control.unexpected(&other, "the next size")),
        }?;
    }
    let outcome = outcome(session, rows, None);
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
    for size in session.agreed.sizes.clone() {
        let (row, checked) = if session.agreed.test.is_latency() {
            let (row, checked) = lat::measure(session, size)?;
            (Row::Lat(row), checked)
        } else {
            let (row, checked) = bw::measure(session, size)?;
            (Row::Bw(row), checked)
        };
        total.messages += checked.messages;
        total.bytes += checked.bytes;
        session.control.send(&Message::Row(row.clone()))?;
        if !plan.json {
            report::row(&row, session.agreed.connection)?;
        }
        rows.push(row);
    }
    session.control.send(&Message::Finished)?;
    let outcome = outcome(session, rows, session.agreed.check.then_some(total));
    if plan.json { report::json(&outcome) } else { report::footer(&outcome) }
}

fn outcome(session: &Session, rows: Vec<Row>, checked: Option<Checked>) -> Outcome {
    Outcome { agreed: session.agreed.clone(), identity: session.identity.clone(), rows, checked }
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
