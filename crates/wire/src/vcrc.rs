//! The variant CRC of InfiniBand, which each link makes anew. The invariant CRC is in `icrc`.

/// The polynomial 0x100B, reflected.
const POLY: u16 = 0xD008;

static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut r, mut bit) = (byte as u16, 0);
        while bit < 8 {
            r = if r & 1 != 0 { r >> 1 ^ POLY } else { r >> 1 };
            bit += 1;
        }
        table[byte] = r;
        byte += 1;
    }
    table
};

/// The CRC over a packet from the LRH through the ICRC, to be stored least significant byte first.
pub fn compute(bytes: &[u8]) -> u16 {
    !bytes.iter().fold(0xFFFF, |crc: u16, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::compute;

    /// The same CRC from the polynomial as written, a bit at a time and not reflected: bits enter
    /// in the order of the wire, and the register is turned round at the end.
    fn bitwise(bytes: &[u8]) -> u16 {
        let mut register = 0xFFFFu16;
        for byte in bytes {
            for bit in 0..8 {
                let out = (register >> 15) as u8 ^ (byte >> bit & 1);
                register = register << 1 ^ if out == 1 { 0x100B } else { 0 };
            }
        }
        !register.reverse_bits()
    }

    #[test]
    fn agrees_with_the_definition() {
        assert_eq!(compute(b""), 0);
        let bytes: Vec<u8> = (0..300u32).map(|i| (i * i * 7 + i) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(compute(&bytes[..len]), bitwise(&bytes[..len]));
        }
    }
}
