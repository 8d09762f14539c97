//! Sorted sets.

use super::{Args, NOT_A_FLOAT, SYNTAX, ScanOptions, cursor, either, is, places, scanned, to_int};
use crate::core::{Core, WRONG_TYPE};
use crate::resp::{Bytes, Reply};
use crate::value::{Value, Zset, float, format_double, int};

fn read(core: &mut Core, key: &[u8], read: impl FnOnce(Option<&Zset>) -> Reply) -> Reply {
    match core.entry(key).map(|entry| &*entry.value) {
        None => read(None),
        Some(Value::Zset(zset)) => read(Some(zset)),
        Some(_) => WRONG_TYPE,
    }
}

fn change<'a>(core: &'a mut Core, key: &[u8]) -> Result<&'a mut Zset, Reply> {
    core.change(key, || Value::Zset(Zset::default()), Value::zset_mut)
}

/// How this server writes scores.
fn writer(core: &Core) -> impl Fn(f64) -> Reply + use<> {
    let is_shortest = core.config.is_at_least(7, 2);
    move |score| Reply::Double(score, format_double(score, is_shortest))
}

pub(super) fn zscore(core: &mut Core, words: Args<'_>) -> Reply {
    let write = writer(core);
    read(core, words[1], |zset| zset.and_then(|zset| zset.score(words[2])).map_or(Reply::Nil, write))
}

pub(super) fn zmscore(core: &mut Core, words: Args<'_>) -> Reply {
    let write = writer(core);
    read(core, words[1], |zset| {
        let score = |member: &&[u8]| zset.and_then(|zset| zset.score(member)).map_or(Reply::Nil, &write);
        Reply::Array(words[2..].iter().map(score).collect())
    })
}

pub(super) fn zcard(core: &mut Core, words: Args<'_>) -> Reply {
    read(core, words[1], |zset| Reply::count(zset.map_or(0, Zset::len)))
}

fn ranked(core: &mut Core, words: Args<'_>, is_reverse: bool) -> Reply {
    let with_score = match words[3..] {
        [] => false,
        [word] if is(word, "WITHSCORE") && core.config.is_at_least(7, 2) => true,
        [_] if core.config.is_at_least(7, 2) => return SYNTAX,
        _ => return super::wrong_arity(&String::from_utf8_lossy(words[0])),
    };
    let write = writer(core);
    read(core, words[1], |zset| {
        let found = zset.and_then(|zset| Some((zset.rank(words[2])?, zset.score(words[2])?, zset.len())));
        let Some((rank, score, count)) = found else {
            return if with_score { Reply::NilArray } else { Reply::Nil };
        };
        let rank = Reply::count(if is_reverse { count - 1 - rank } else { rank });
        if with_score { Reply::Array(vec![rank, write(score)]) } else { rank }
    })
}

pub(super) fn zrank(core: &mut Core, words: Args<'_>) -> Reply {
    ranked(core, words, false)
}

pub(super) fn zrevrank(core: &mut Core, words: Args<'_>) -> Reply {
    ranked(core, words, true)
}

// Changes.

fn add(core: &mut Core, words: Args<'_>, always_adds: bool) -> Reply {
    let result = |core: &mut Core| {
        let mut at = 2;
        let (mut only_new, mut only_there, mut greater, mut less, mut counts_changes) =
            (false, false, false, false, false);
        let mut increments = always_adds;
        if !always_adds {
            while let Some(word) = words.get(at) {
                match () {
                    () if is(word, "NX") => only_new = true,
                    () if is(word, "XX") => only_there = true,
                    () if is(word, "GT") => greater = true,
                    () if is(word, "LT") => less = true,
                    () if is(word, "CH") => counts_changes = true,
                    () if is(word, "INCR") => increments = true,
                    () => break,
                }
                at += 1;
            }
        }
        let pairs = &words[at..];
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(SYNTAX);
        }
        if only_new && only_there {
            return Err(Reply::error("ERR XX and NX options at the same time are not compatible"));
        }
        if only_new && (greater || less) || greater && less {
            return Err(Reply::error("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if increments && pairs.len() > 2 {
            return Err(Reply::error("ERR INCR option supports a single increment-element pair"));
        }
        let mut scores = Vec::with_capacity(pairs.len() / 2);
        for pair in pairs.chunks(2) {
            scores.push(float(pair[0]).ok_or(NOT_A_FLOAT)?);
        }
        if only_there && !core.has(words[1]) {
            return Ok(if increments { Reply::Nil } else { Reply::Int(0) });
        }
        let write = writer(core);
        let zset = change(core, words[1])?;
        let (mut added, mut changed, mut last) = (0, 0, None);
        for (pair, given) in pairs.chunks(2).zip(scores) {
            let before = zset.score(pair[1]);
            let score = if increments { before.unwrap_or(0.0) + given } else { given };
            if score.is_nan() {
                return Err(Reply::error("ERR resulting score is not a number (NaN)"));
            }
            let is_refused = match before {
                Some(before) => only_new || greater && score <= before || less && score >= before,
                None => only_there,
            };
            if is_refused {
                continue;
            }
            last = Some(score);
            match zset.set(pair[1], score) {
                None => added += 1,
                Some(before) if before != score => changed += 1,
                Some(_) => {}
            }
        }
        core.dirty += added + changed;
        let count = if counts_changes { added + changed } else { added };
        Ok(match increments {
            true => last.map_or(Reply::Nil, write),
            false => Reply::Int(i64::try_from(count).unwrap_or(i64::MAX)),
        })
    };
    either(result(core))
}

pub(super) fn zadd(core: &mut Core, words: Args<'_>) -> Reply {
    add(core, words, false)
}

pub(super) fn zincrby(core: &mut Core, words: Args<'_>) -> Reply {
    add(core, words, true)
}

pub(super) fn zrem(core: &mut Core, words: Args<'_>) -> Reply {
    if !core.has(words[1]) {
        return Reply::Int(0);
    }
    let result = |core: &mut Core| {
        let zset = change(core, words[1])?;
        let removed = words[2..].iter().filter(|member| zset.remove(member)).count();
        core.dirty += u64::from(removed > 0);
        Ok(Reply::count(removed))
    };
    either(result(core))
}

// Ranges.

#[derive(Clone, Copy, PartialEq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// An end of a range of scores: whether it belongs to the range, and the score.
fn score_bound(word: &[u8]) -> Result<(bool, f64), Reply> {
    let (is_open, number) = word.strip_prefix(b"(").map_or((false, word), |rest| (true, rest));
    Ok((is_open, float(number).ok_or(Reply::error("ERR min or max is not a float"))?))
}

enum LexBound<'a> {
    Least,
    Greatest,
    With(&'a [u8]),
    Without(&'a [u8]),
}

fn lex_bound(word: &[u8]) -> Result<LexBound<'_>, Reply> {
    match word {
        b"-" => Ok(LexBound::Least),
        b"+" => Ok(LexBound::Greatest),
        [b'(', rest @ ..] => Ok(LexBound::Without(rest)),
        [b'[', rest @ ..] => Ok(LexBound::With(rest)),
        _ => Err(Reply::error("ERR min or max not valid string range item")),
    }
}

/// The ranks that a range means: from the lower end up to the upper one, in the order of the set.
enum Bounds<'a> {
    Rank(i64, i64),
    Score((bool, f64), (bool, f64)),
    Lex(LexBound<'a>, LexBound<'a>),
}

impl<'a> Bounds<'a> {
    fn read(by: By, low: &'a [u8], high: &'a [u8]) -> Result<Bounds<'a>, Reply> {
        Ok(match by {
            By::Rank => Bounds::Rank(to_int(low)?, to_int(high)?),
            By::Score => Bounds::Score(score_bound(low)?, score_bound(high)?),
            By::Lex => Bounds::Lex(lex_bound(low)?, lex_bound(high)?),
        })
    }

    fn ranks(&self, zset: &Zset, is_reverse: bool) -> std::ops::Range<usize> {
        let (from, to) = match self {
            Bounds::Rank(start, stop) => {
                let places = places(*start, *stop, zset.len());
                if is_reverse && !places.is_empty() {
                    return zset.len() - places.end..zset.len() - places.start;
                }
                return places;
            }
            Bounds::Score((low_open, low), (high_open, high)) => {
                let from = zset.count_before(|score, _| if *low_open { score <= *low } else { score < *low });
                let to = zset.count_before(|score, _| if *high_open { score < *high } else { score <= *high });
                (from, to)
            }
            Bounds::Lex(low, high) => {
                let from = match low {
                    LexBound::Least => 0,
                    LexBound::Greatest => zset.len(),
                    LexBound::With(text) => zset.count_before(|_, member| member < *text),
                    LexBound::Without(text) => zset.count_before(|_, member| member <= *text),
                };
                let to = match high {
                    LexBound::Least => 0,
                    LexBound::Greatest => zset.len(),
                    LexBound::With(text) => zset.count_before(|_, member| member <= *text),
                    LexBound::Without(text) => zset.count_before(|_, member| member < *text),
                };
                (from, to)
            }
        };
        from..to.max(from)
    }
}

struct Options {
    by: By,
    is_reverse: bool,
    with_scores: bool,
    limit: Option<(i64, i64)>,
}

/// Where a `LIMIT` begins in so many members, if it can. In sets that outgrew their compact form, servers from 7.4 on count a
/// negative offset from the end.
fn offset_of(offset: i64, count: usize, from_end: bool) -> Option<usize> {
    match usize::try_from(offset) {
        Ok(offset) => Some(offset),
        Err(_) if from_end => count.checked_sub(usize::try_from(offset.unsigned_abs()).ok()?),
        Err(_) => None,
    }
}

fn range(core: &mut Core, words: Args<'_>, mut options: Options, is_fixed: bool) -> Reply {
    let mut result = |core: &mut Core| {
        let mut rest = words[4..].iter();
        while let Some(word) = rest.next() {
            match () {
                () if is(word, "WITHSCORES") => options.with_scores = true,
                () if is(word, "LIMIT") => {
                    let (offset, count) = (rest.next().ok_or(SYNTAX)?, rest.next().ok_or(SYNTAX)?);
                    options.limit = Some((to_int(offset)?, to_int(count)?));
                }
                () if !is_fixed && is(word, "REV") => options.is_reverse = true,
                () if !is_fixed && is(word, "BYSCORE") => options.by = By::Score,
                () if !is_fixed && is(word, "BYLEX") => options.by = By::Lex,
                () => return Err(SYNTAX),
            }
        }
        if options.limit.is_some() && options.by == By::Rank {
            return Err(Reply::error(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if options.with_scores && options.by == By::Lex {
            return Err(Reply::error("ERR syntax error, WITHSCORES not supported in combination with BYLEX"));
        }
        let (low, high) = match options.is_reverse && options.by != By::Rank {
            true => (words[3], words[2]),
            false => (words[2], words[3]),
        };
        let bounds = Bounds::read(options.by, low, high)?;
        let (write, is_recent) = (writer(core), core.config.is_at_least(7, 4));
        Ok(read(core, words[1], |zset| {
            let Some(zset) = zset else { return Reply::Array(Vec::new()) };
            let mut ranks = bounds.ranks(zset, options.is_reverse);
            if let Some((offset, count)) = options.limit {
                let Some(offset) = offset_of(offset, ranks.len(), zset.is_large() && is_recent) else {
                    return Reply::Array(Vec::new());
                };
                let (offset, count) = (offset.min(ranks.len()), usize::try_from(count).unwrap_or(usize::MAX));
                let count = count.min(ranks.len() - offset);
                ranks = match options.is_reverse {
                    true => ranks.end - offset - count..ranks.end - offset,
                    false => ranks.start + offset..ranks.start + offset + count,
                };
            }
            let mut found = Vec::with_capacity(ranks.len() * if options.with_scores { 2 } else { 1 });
            let add = |(member, score): (&Bytes, f64)| {
                found.push(Reply::Bulk(member.clone()));
                if options.with_scores {
                    found.push(write(score));
                }
            };
            let range = zset.range(ranks.start, ranks.end);
            if options.is_reverse {
                range.rev().for_each(add)
            } else {
                range.for_each(add)
            }
            Reply::Array(found)
        }))
    };
    either(result(core))
}

pub(super) fn zrange(core: &mut Core, words: Args<'_>) -> Reply {
    range(core, words, Options { by: By::Rank, is_reverse: false, with_scores: false, limit: None }, false)
}

pub(super) fn zrevrange(core: &mut Core, words: Args<'_>) -> Reply {
    range(core, words, Options { by: By::Rank, is_reverse: true, with_scores: false, limit: None }, true)
}

pub(super) fn zrangebyscore(core: &mut Core, words: Args<'_>) -> Reply {
    range(core, words, Options { by: By::Score, is_reverse: false, with_scores: false, limit: None }, true)
}

pub(super) fn zrevrangebyscore(core: &mut Core, words: Args<'_>) -> Reply {
    range(core, words, Options { by: By::Score, is_reverse: true, with_scores: false, limit: None }, true)
}

pub(super) fn zrangebylex(core: &mut Core, words: Args<'_>) -> Reply {
    range(core, words, Options { by: By::Lex, is_reverse: false, with_scores: false, limit: None }, true)
}

fn count(core: &mut Core, words: Args<'_>, by: By) -> Reply {
    either(Bounds::read(by, words[2], words[3]).map(|bounds| {
        read(core, words[1], |zset| Reply::count(zset.map_or(0, |zset| bounds.ranks(zset, false).len())))
    }))
}

pub(super) fn zcount(core: &mut Core, words: Args<'_>) -> Reply {
    count(core, words, By::Score)
}

pub(super) fn zlexcount(core: &mut Core, words: Args<'_>) -> Reply {
    count(core, words, By::Lex)
}

fn remove_range(core: &mut Core, words: Args<'_>, by: By) -> Reply {
    let result = |core: &mut Core| {
        let bounds = Bounds::read(by, words[2], words[3])?;
        if !core.has(words[1]) {
            return Ok(Reply::Int(0));
        }
        let zset = change(core, words[1])?;
        let ranks = bounds.ranks(zset, false);
        let removed = zset.remove_range(ranks.start, ranks.end);
        core.dirty += u64::from(removed > 0);
        Ok(Reply::count(removed))
    };
    either(result(core))
}

pub(super) fn zremrangebyrank(core: &mut Core, words: Args<'_>) -> Reply {
    remove_range(core, words, By::Rank)
}

pub(super) fn zremrangebyscore(core: &mut Core, words: Args<'_>) -> Reply {
    remove_range(core, words, By::Score)
}

pub(super) fn zremrangebylex(core: &mut Core, words: Args<'_>) -> Reply {
    remove_range(core, words, By::Lex)
}

fn pop(core: &mut Core, words: Args<'_>, is_reverse: bool) -> Reply {
    let result = |core: &mut Core| {
        if words.len() > 3 {
            return Err(SYNTAX);
        }
        let count = match words.get(2) {
            None => 1,
            Some(word) => int(word)
                .and_then(|count| usize::try_from(count).ok())
                .ok_or(Reply::error("ERR value is out of range, must be positive"))?,
        };
        if !core.has(words[1]) {
            return Ok(Reply::Array(Vec::new()));
        }
        let write = writer(core);
        let zset = change(core, words[1])?;
        let count = count.min(zset.len());
        let ranks = if is_reverse { zset.len() - count..zset.len() } else { 0..count };
        let mut entries: Vec<(Bytes, f64)> =
            zset.range(ranks.start, ranks.end).map(|(member, score)| (member.clone(), score)).collect();
        if is_reverse {
            entries.reverse();
        }
        entries.iter().for_each(|(member, _)| {
            let _ = zset.remove(member);
        });
        core.dirty += u64::from(!entries.is_empty());
        let pair = |(member, score)| [Reply::Bulk(member), write(score)];
        Ok(Reply::Array(entries.into_iter().flat_map(pair).collect()))
    };
    either(result(core))
}

pub(super) fn zpopmin(core: &mut Core, words: Args<'_>) -> Reply {
    pop(core, words, false)
}

pub(super) fn zpopmax(core: &mut Core, words: Args<'_>) -> Reply {
    pop(core, words, true)
}

pub(super) fn zscan(core: &mut Core, words: Args<'_>) -> Reply {
    let mark = core.mark;
    let cursor = match cursor(words[2]) {
        Ok(cursor) => cursor,
        Err(refused) => return refused,
    };
    let is_recent = core.config.is_at_least(7, 2);
    read(core, words[1], |zset| {
        let Some(zset) = zset else { return scanned(0, Vec::new()) };
        // Not as other commands write them: what is large is long, from 7.2 on too.
        let write = |score| format_double(score, is_recent && !zset.is_large());
        let options = match ScanOptions::read(&words[3..], false) {
            Ok(options) => options,
            Err(refused) => return refused,
        };
        let (found, next) = zset.scan(cursor, mark, options.count);
        let found = found.into_iter().filter(|(member, _)| options.fits(member));
        let pair = |(member, score): (&Bytes, f64)| [Reply::Bulk(member.clone()), Reply::bulk(write(score))];
        scanned(next, found.flat_map(pair).collect())
    })
}
