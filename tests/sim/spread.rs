//! How far the id of a push moves its due time: written from docs/reference/producing.md, and from nothing of dwell.

/// The first 64 bits of murmur3 x64_128 with seed 0 over the bytes of the id, modulo the spread in milliseconds.
pub(crate) fn moved_ms(id: &str, spread_ms: u64) -> u64 {
    murmur3_x64_128(id.as_bytes()).0 % spread_ms
}

const FACTORS: (u64, u64) = (0x87c3_7b91_1142_53d5, 0x4cf5_ad43_2745_937f);

fn murmur3_x64_128(bytes: &[u8]) -> (u64, u64) {
    let (mut first, mut second) = (0_u64, 0_u64);
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        let (low, high) = block.split_at(8);
        first = (first ^ low_mixed(number(low))).rotate_left(27).wrapping_add(second);
        first = first.wrapping_mul(5).wrapping_add(0x52dc_e729);
        second = (second ^ high_mixed(number(high))).rotate_left(31).wrapping_add(first);
        second = second.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = blocks.remainder().split_at(blocks.remainder().len().min(8));
    let length = bytes.len() as u64;
    first ^= low_mixed(number(low)) ^ length;
    second ^= high_mixed(number(high)) ^ length;
    first = first.wrapping_add(second);
    second = second.wrapping_add(first);
    (first, second) = (finished(first), finished(second));
    first = first.wrapping_add(second);
    (first, second.wrapping_add(first))
}

/// Little endian; 0 without a byte.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn low_mixed(number: u64) -> u64 {
    number.wrapping_mul(FACTORS.0).rotate_left(31).wrapping_mul(FACTORS.1)
}

fn high_mixed(number: u64) -> u64 {
    number.wrapping_mul(FACTORS.1).rotate_left(33).wrapping_mul(FACTORS.0)
}

fn finished(mut number: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        number = (number ^ number >> 33).wrapping_mul(factor);
    }
    number ^ number >> 33
}
