//! What dwell does while a real Redis is away, unfit, full, busy, or not the primary: calls say so, and go on by themselves
//! when it is over.

mod startup;
mod half_open;
mod login;
mod permissions;
mod redis_errors;
mod tls;
