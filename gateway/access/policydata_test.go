package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

// role adds a Role and, with subjects, a RoleBinding called binding.
func (p *policy) role(namespace, name, binding string, subjects []rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	p.add(roles, &rbacv1.Role{ObjectMeta: in(namespace, name), Rules: rules})
	if len(subjects) == 0 {
		return
	}
	p.add(roleBindings, &rbacv1.RoleBinding{
		ObjectMeta: in(namespace, binding), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	})
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func account(namespace, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
}

func in(namespace, name string) metav1.ObjectMeta {
	m := bootstrapMeta(name)
	m.Namespace = namespace
	return m
}
