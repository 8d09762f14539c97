#!/bin/sh
# Close unpaid orders, with curl 7.82 or newer: a customer has some time to pay, and then the shop closes the order.
set -eu
url=${DWELL_SERVER:-http://127.0.0.1:7373}/v1/topics/orders
orders=$(mktemp -d) # stands for the database
trap 'rm -rf "$orders"' EXIT
trap 'exit 0' TERM INT

# The id is the same in each repeat, so a push whose answer was lost is stored once.
checkout() {
  echo unpaid >"$orders/$1"
  curl -sS --fail --retry 10 --retry-all-errors -o "$orders/answer" \
    "$url/messages?id=close-$1&key=order-$1&delay=${PAY_WITHIN:-30m}" -d "$1"
}

pay() {
  echo paid >"$orders/$1"
  echo "paid order $1"
  # 404 and 409: the message is being delivered, and close finds that the order is paid.
  curl -sS --retry 10 -o "$orders/answer" -X DELETE "$url/messages/close-$1?key=order-$1"
}

close() {
  if [ "$(cat "$orders/$1")" = unpaid ]; then
    echo closed >"$orders/$1"
    echo "closed order $1"
  fi
}

field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$orders/due"; }

checkout 4711
checkout 4712
pay 4711
while :; do
  # In the background, so that a signal ends the wait.
  curl -sS --fail --json '{"wait": "30s"}' -o "$orders/due" "$url/groups/default/reserve" &
  if ! wait $!; then
    echo "the broker does not answer; trying again" >&2
    curl -s --retry 60 --retry-all-errors -o "$orders/answer" "${DWELL_SERVER:-http://127.0.0.1:7373}/readyz"
    continue
  fi
  receipt=$(field receipt)
  [ -n "$receipt" ] || continue
  if close "$(field payload)"; then verb=ack; else verb=nack; fi
  curl -sS --retry 10 --retry-all-errors -o "$orders/answer" --json "{\"receipts\": [\"$receipt\"]}" "$url/groups/default/$verb"
done
