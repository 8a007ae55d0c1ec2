package app

import "k8s.io/apiserver/pkg/util/webhook"

// ServiceResolverForTests returns the resolver of SetServiceResolverForTests, or nil.
func ServiceResolverForTests() webhook.ServiceResolver { return testServiceResolver }
