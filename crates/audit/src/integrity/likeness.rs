//! Whether ICRCs are wrong alike: the same change of a header makes differences that depend on the
//! number of bytes behind it only, since CRC is linear. Taking the length out makes them equal.

/// The generator without its highest power, reflected: bit 31 is the coefficient of x^0.
const POLY: u32 = 0xEDB8_8320;

/// 1 as a polynomial.
const ONE: u32 = 1 << 31;

/// x to the power of -8: one byte less.
const BYTE_LESS: u32 = {
    let (mut a, mut i) = (ONE, 0);
    while i < 8 {
        a = if a & ONE != 0 { (a ^ POLY) << 1 | 1 } else { a << 1 };
        i += 1;
    }
    a
};

/// The difference that the change would make with no byte behind the headers.
pub(super) fn without_length(difference: u32, bytes: usize) -> u32 {
    let (mut result, mut power, mut left) = (difference, BYTE_LESS, bytes);
    while left > 0 {
        if left & 1 == 1 {
            result = multiply(result, power);
        }
        power = multiply(power, power);
        left >>= 1;
    }
    result
}

/// The product of two polynomials modulo the generator.
fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for i in (0..32).rev() {
        if a >> i & 1 == 1 {
            product ^= b;
        }
        b = if b & 1 == 1 { b >> 1 ^ POLY } else { b >> 1 };
    }
    product
}

#[cfg(test)]
mod tests {
    use super::without_length;

    #[test]
    fn one_change_gives_one_value_whatever_follows() {
        let difference = |len: usize| {
            let (mut a, mut b) = (vec![7; 60 + len], vec![7; 60 + len]);
            a[33] = 1;
            b[33] = 0xFE;
            crc32fast::hash(&a) ^ crc32fast::hash(&b)
        };
        let alone = difference(0);
        for len in [0, 1, 4, 64, 1040, 4124] {
            assert_eq!(without_length(difference(len), len), alone, "{len} bytes");
        }
    }
}
