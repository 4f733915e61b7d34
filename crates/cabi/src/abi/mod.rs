//! The structures of the libibverbs ABI as C programs see them, under their C names, with the
//! layout of `infiniband/verbs.h` (x86-64 and aarch64, LP64) checked at compile time. Enumerations
//! are plain integers: a foreign value must not be undefined behaviour. No behaviour lives here.
#![allow(non_camel_case_types)]

mod attr;
mod consts;
mod context;
mod kern;
mod object;
mod work;

pub(crate) use attr::*;
pub(crate) use consts::*;
pub(crate) use context::*;
pub(crate) use kern::*;
pub(crate) use object::*;
pub(crate) use work::*;

/// Checks sizes and offsets at compile time, and keeps the list for the test that asks the C
/// compiler about the same.
macro_rules! layout {
    ($list:ident: $($name:ident: $size:literal $(, $field:ident @ $offset:literal)*;)*) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size);
            $(const _: () = assert!(core::mem::offset_of!($name, $field) == $offset);)*
        )*
        #[cfg(test)]
        pub(super) const $list: &[crate::abi::Layout] =
            &[$((stringify!($name), $size, &[$((stringify!($field), $offset),)*]),)*];
    };
}
pub(crate) use layout;

/// Name, size, fields with their offsets.
#[cfg(test)]
type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

#[cfg(test)]
mod layout_tests;
