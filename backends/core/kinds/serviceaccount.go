package kinds

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico/resource"
	"portico/resource/rest"
)

// enforceMountableSecrets is the annotation that limits pods of the account to mounting the
// secrets that it lists.
const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// serviceAccounts is the row of v1 ServiceAccount, with the token subresource if cfg can create
// tokens.
func serviceAccounts(cfg Config) *rest.Kind {
	k := &rest.Kind{
		Info: resource.Info{
			Versions: []string{"v1"}, Resource: "serviceaccounts", Kind: "ServiceAccount",
			ShortNames: []string{"sa"}, Namespaced: true,
		},
		Strategy: rest.Strategy{
			PrepareCreate: onCreate(keepSecretNames),
			PrepareUpdate: onUpdate(func(sa, _ *corev1.ServiceAccount) { keepSecretNames(sa) }),
			Warnings:      warn(serviceAccountWarnings),
		},
		Columns: []metav1.TableColumnDefinition{nameColumn(), ageColumn()},
		Cells: cells(func(sa *corev1.ServiceAccount) []any {
			return []any{sa.Name, age(sa.CreationTimestamp)}
		}),
		UnconditionalUpdate: true,
		ReturnDeleted:       true,
	}
	if cfg.CreateToken != nil {
		k.Subresources = []rest.Subresource{{
			Name:   "token",
			GVK:    authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
			Verbs:  []string{"create"},
			Create: cfg.CreateToken,
			OtherName: func(name, url string) error {
				return apierrors.NewInvalid(schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}, url, field.ErrorList{
					field.Invalid(field.NewPath("metadata", "name"), name, "must match the service account name if specified"),
				})
			},
		}}
	}
	return k
}

// keepSecretNames reduces references to secrets to their names: they are of the same
// namespace.
func keepSecretNames(sa *corev1.ServiceAccount) {
	for i, s := range sa.Secrets {
		sa.Secrets[i] = corev1.ObjectReference{Name: s.Name}
	}
}

func serviceAccountWarnings(sa *corev1.ServiceAccount) []string {
	if _, ok := sa.Annotations[enforceMountableSecrets]; !ok {
		return nil
	}
	return []string{"metadata.annotations[" + enforceMountableSecrets +
		"]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}
