package plugins

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"

	"portico/resource/rest"
)

// ingressClassAnnotation is the class of an Ingress in its older form.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// newDefaultIngressClass gives new Ingresses without a class the default one.
func newDefaultIngressClass(cfg *Config) (rest.Admission, error) {
	classes := cfg.Resource(networkingv1.GroupName, "ingressclasses")
	return mutates(func(ctx context.Context, a *rest.Attributes) error {
		ingress, ok := written[*networkingv1.Ingress](a)
		if !ok || a.Operation != rest.Create || ingress.Spec.IngressClassName != nil || has(ingress.Annotations, ingressClassAnnotation) {
			return nil
		}
		class, err := defaultClass[*networkingv1.IngressClass](ctx, classes, networkingv1.AnnotationIsDefaultIngressClass)
		if err != nil {
			return forbidden(a, err)
		}
		if class != nil {
			ingress.Spec.IngressClassName = &class.Name
		}
		return nil
	}), nil
}

func has(annotations map[string]string, key string) bool {
	_, ok := annotations[key]
	return ok
}

// defaultClass returns the newest class with one of the annotations set to true; the zero value
// without any.
func defaultClass[T rest.Object](ctx context.Context, classes *rest.Resource, annotations ...string) (none T, err error) {
	all, err := list[T](ctx, classes, "")
	if err != nil {
		return none, err
	}
	var defaults []T
	for _, class := range all {
		for _, key := range annotations {
			if class.GetAnnotations()[key] == "true" {
				defaults = append(defaults, class)
				break
			}
		}
	}
	return newest(defaults), nil
}
