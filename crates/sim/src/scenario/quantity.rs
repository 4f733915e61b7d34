//! Values of a scenario file that have a unit.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use wire::{Rate, Span};

use crate::units;

/// A kind of value that is written as text.
pub(super) trait Written: Sized {
    const WHAT: &'static str;
    fn read(text: &str) -> Result<Self, String>;
}

struct Reader<T>(PhantomData<T>);

impl<T: Written> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::read(text).map_err(E::custom)
    }
}

macro_rules! written {
    ($(#[$doc:meta] $name:ident($of:ty), $what:literal, $read:expr;)*) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) struct $name(pub(super) $of);

        impl Written for $name {
            const WHAT: &'static str = $what;
            fn read(text: &str) -> Result<Self, String> {
                let read: fn(&str) -> Result<$of, String> = $read;
                read(text).map($name)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Reader(PhantomData))
            }
        }
    )*};
}

written! {
    /// A rate.
    Rated(Rate), "a rate such as \"100Gbps\"", units::rate;
    /// A time.
    Lasting(Span), "a time such as \"1us\"", units::span;
    /// Bytes.
    Bytes(u64), "a number of bytes such as \"4MB\"", units::bytes;
    /// A part of the whole, in parts of 10^9.
    Part(u32), "a part of the whole such as \"1%\"", units::fraction;
    /// A ratio of two whole numbers.
    Ratio((u32, u32)), "a ratio such as \"1/8\" or \"2\"", ratio;
}

fn ratio(text: &str) -> Result<(u32, u32), String> {
    let (above, below) = text.split_once('/').unwrap_or((text, "1"));
    let number = |text: &str| text.trim().parse::<u32>().ok();
    match (number(above), number(below)) {
        (Some(above), Some(below)) if below > 0 => Ok((above, below)),
        _ => Err(format!("expected a ratio such as 1/8 or 2, found `{text}`")),
    }
}
