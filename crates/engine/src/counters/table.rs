//! The form of a table of counters: fields, their names and what they mean, in one list. What there
//! is to count stands in the tables themselves.

/// What a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CounterKind {
    /// Something that happens.
    Count,
    /// A cause for which a received packet is dropped. A packet has at most one.
    Drop,
    /// A packet that is lost in another way.
    Loss,
}

/// A counter, as people find it described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterInfo {
    /// Its name, the same everywhere.
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub help: &'static str,
    /// What kind of thing that is.
    pub kind: CounterKind,
}

/// Declares a struct of counters: `counts`, `drops` and `losses` in this order, each counter with
/// its documentation, which is also its description.
#[macro_export]
macro_rules! counter_table {
    (
        $(#[$meta:meta])*
        pub struct $Table:ident {
            counts { $($(#[doc = $count_doc:literal])+ $count:ident,)* }
            drops { $($(#[doc = $drop_doc:literal])+ $drop:ident,)* }
            losses { $($(#[doc = $loss_doc:literal])+ $loss:ident,)* }
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $Table {
            $($(#[doc = $count_doc])+ pub $count: u64,)*
            $($(#[doc = $drop_doc])+ pub $drop: u64,)*
            $($(#[doc = $loss_doc])+ pub $loss: u64,)*
        }

        impl $Table {
            /// Every counter of the table, in the order of [`iter`](Self::iter).
            pub const INFO: &'static [$crate::counters::CounterInfo] = &[
                $($crate::counters::CounterInfo {
                    name: stringify!($count),
                    help: concat!($($count_doc),+),
                    kind: $crate::counters::CounterKind::Count,
                },)*
                $($crate::counters::CounterInfo {
                    name: stringify!($drop),
                    help: concat!($($drop_doc),+),
                    kind: $crate::counters::CounterKind::Drop,
                },)*
                $($crate::counters::CounterInfo {
                    name: stringify!($loss),
                    help: concat!($($loss_doc),+),
                    kind: $crate::counters::CounterKind::Loss,
                },)*
            ];

            /// Names and values, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [
                    $((stringify!($count), self.$count),)*
                    $((stringify!($drop), self.$drop),)*
                    $((stringify!($loss), self.$loss),)*
                ]
                .into_iter()
            }

            /// Received packets that were dropped, for any cause.
            pub fn dropped(&self) -> u64 {
                0 $(+ self.$drop)*
            }
        }
    };
}
