// The CustomResourceDefinitions of the Gateway API, its Inference Extension and KEDA: read from their
// modules, nothing is built.
module tonnage.dev/e2e/integration-crds

go 1.26.0

require (
	github.com/kedacore/keda/v2 v2.21.0
	sigs.k8s.io/gateway-api v1.4.1
	sigs.k8s.io/gateway-api-inference-extension v1.4.0
)
