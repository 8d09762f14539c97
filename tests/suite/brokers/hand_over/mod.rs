//! Brokers whose disks go with their pods: what they have buffered is handed over at a stop.

mod pages;
mod replaced;
