#!/usr/bin/env bash
# aws-cli against a broker: each step prints what it answered, and the last line says ok.
set -euo pipefail
aws() { command aws --endpoint-url "$SQS_ENDPOINT" --output text sqs "$@"; }
name=cli-$RANDOM$RANDOM
url=$(aws create-queue --queue-name "$name" --attributes VisibilityTimeout=30 --query QueueUrl)
aws send-message --queue-url "$url" --message-body 'close order 4711' --delay-seconds 1 \
  --message-attributes 'kind={DataType=String,StringValue=order}' >/dev/null
received=$(aws receive-message --queue-url "$url" --wait-time-seconds 10 --message-attribute-names All \
  --query 'Messages[0].[ReceiptHandle,Body,MessageAttributes.kind.StringValue]')
IFS=$'\t' read -r handle body kind <<<"$received"
[ "$body" = 'close order 4711' ] && [ "$kind" = order ] || { echo "aws-cli: got '$received'" >&2; exit 1; }
aws change-message-visibility --queue-url "$url" --receipt-handle "$handle" --visibility-timeout 40
aws delete-message --queue-url "$url" --receipt-handle "$handle"
left=$(aws get-queue-attributes --queue-url "$url" --attribute-names ApproximateNumberOfMessagesNotVisible \
  --query Attributes.ApproximateNumberOfMessagesNotVisible)
[ "$left" = 0 ] || { echo "aws-cli: $left are left" >&2; exit 1; }
aws delete-queue --queue-url "$url"
! aws get-queue-url --queue-name "$name" 2>/dev/null || { echo "aws-cli: the queue is still there" >&2; exit 1; }
echo 'aws-cli: create, send, receive, change, delete ... ok'
