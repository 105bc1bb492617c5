//! A bounded channel as the stream that gRPC answers with.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;

/// Yields what the channel's senders send, and ends when they are gone.
#[derive(Debug)]
pub struct ReceiverStream<T>(pub mpsc::Receiver<T>);

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(context)
    }
}
