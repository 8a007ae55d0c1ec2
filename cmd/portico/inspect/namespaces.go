package inspect

import corev1 "k8s.io/api/core/v1"

// Waits returns why the deletion of a namespace waits for a server or a webhook that does not do its part, as the
// namespace controller says; "" if it does not.
func Waits(n *corev1.Namespace) string {
	if n.DeletionTimestamp == nil {
		return ""
	}
	for _, c := range n.Status.Conditions {
		failed := c.Type == corev1.NamespaceDeletionContentFailure || c.Type == corev1.NamespaceDeletionDiscoveryFailure
		if failed && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}
