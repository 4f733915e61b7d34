//! Events: armed for, waited for, taken, acknowledged.

use crate::checker::Checker;
use crate::finding::{Call, Finding};
use crate::object::{Handle, Object};
use crate::rule::Rule;

impl Checker {
    /// A completion queue has been armed.
    pub fn armed(&mut self, cq: Handle) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.armed += 1;
        }
    }

    /// An event of a completion queue has been taken.
    pub fn event_taken(&mut self, call: Call, cq: Handle) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.armed = cq.armed.saturating_sub(1);
            cq.events = (cq.events.0 + 1, Some(call));
        }
    }

    /// Events of a completion queue have been acknowledged.
    pub fn events_acknowledged(&mut self, cq: Handle, count: u64) {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.events.0 = cq.events.0.saturating_sub(count);
        }
    }

    /// An asynchronous event about an object has been taken.
    pub fn async_event_taken(&mut self, call: Call, object: Handle) {
        let events = self.events.entry(object).or_insert((0, call));
        *events = (events.0 + 1, call);
    }

    /// One of an object's asynchronous events has been acknowledged.
    pub fn async_event_acknowledged(&mut self, object: Handle) {
        if let Some((count, _)) = self.events.get_mut(&object) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.events.remove(&object);
            }
        }
    }

    /// Events of an object that were taken and not acknowledged, with the last call that took one.
    fn owed(&self, object: Handle) -> (u64, Option<Call>) {
        let (asynchronous, at) =
            self.events.get(&object).map_or((0, None), |&(count, call)| (count, Some(call)));
        let (completions, cq_at) = self.cqs.get(&object).map_or((0, None), |cq| cq.events);
        (asynchronous + completions, if completions > 0 { cq_at } else { at })
    }

    /// Whether destroying the object would wait for acknowledgements.
    pub fn would_wait(&self, object: Handle) -> bool {
        self.owed(object).0 > 0
    }

    /// Reports that events of an object are not acknowledged, if so.
    pub fn unacknowledged(&mut self, call: Call, object: Handle) {
        let (count, origin) = self.owed(object);
        if count == 0 {
            return;
        }
        let name = self.name(object);
        let found = format!("{count} event(s) of {name} were taken and not acknowledged");
        let finding =
            Finding { rule: Rule::Unacknowledged, call, object: name, wr_id: None, found, origin };
        self.report(finding);
    }

    /// Whether nothing can raise an event on this channel, as things stand.
    pub fn would_sleep(&self, channel: Handle) -> bool {
        let mut of_channel =
            self.cqs.values().filter(|cq| cq.facts.channel == Some(channel)).peekable();
        matches!(self.objects.get(&channel).map(|t| t.object), Some(Object::Channel(_)))
            && of_channel.peek().is_some()
            && of_channel.all(|cq| cq.armed == 0)
    }

    /// Reports that the only thread waits for an event that nothing will raise.
    pub fn never_wakes(&mut self, call: Call, channel: Handle) {
        let count = self.cqs.values().filter(|cq| cq.facts.channel == Some(channel)).count();
        let finding = Finding {
            rule: Rule::NeverWakes,
            call,
            object: self.name(channel),
            wr_id: None,
            found: format!(
                "{count} completion queue(s) lead there, none is armed, no event is pending, and \
                 the program has no other thread"
            ),
            origin: self.objects.get(&channel).map(|tracked| tracked.made),
        };
        self.report(finding);
    }
}
