module dwell/sqscheck

go 1.25

require (
	github.com/aws/aws-sdk-go-v2 v1.47.7
	github.com/aws/aws-sdk-go-v2/config v1.32.0
	github.com/aws/aws-sdk-go-v2/service/sqs v1.52.10
)

require (
	github.com/aws/aws-sdk-go-v2/credentials v1.20.0 // indirect
	github.com/aws/aws-sdk-go-v2/feature/ec2/imds v1.19.0 // indirect
	github.com/aws/aws-sdk-go-v2/internal/configsources v1.5.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/endpoints/v2 v2.8.10 // indirect
	github.com/aws/aws-sdk-go-v2/internal/ini v1.8.4 // indirect
	github.com/aws/aws-sdk-go-v2/internal/v4a v1.5.0 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/accept-encoding v1.13.19 // indirect
	github.com/aws/aws-sdk-go-v2/service/internal/presigned-url v1.14.0 // indirect
	github.com/aws/aws-sdk-go-v2/service/signin v1.7.0 // indirect
	github.com/aws/aws-sdk-go-v2/service/sso v1.35.0 // indirect
	github.com/aws/aws-sdk-go-v2/service/ssooidc v1.40.0 // indirect
	github.com/aws/aws-sdk-go-v2/service/sts v1.47.0 // indirect
	github.com/aws/smithy-go v1.28.8 // indirect
)
