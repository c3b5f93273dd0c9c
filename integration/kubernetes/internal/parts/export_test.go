package parts

import "context"

// Once is once, for tests.
func (c Cache) Once(ctx context.Context, name string, fill func(context.Context, string) error) (string, bool, error) {
	return c.once(ctx, name, fill)
}
