#!/bin/sh
# host-local-moody: the real host-local with moods before it. An ADD always goes
# well; a DEL takes the next mood from the list that the demo wrote for the pod,
# and is refused while the file "down" is there.
moods=$DEMO_MOODS/$CNI_CONTAINERID
mood=well
if [ "$CNI_COMMAND" = DEL ] && [ -s "$moods" ]; then
	read -r mood <"$moods"
	tail -n +2 "$moods" >"$moods.rest" && mv "$moods.rest" "$moods"
fi

fail() {
	echo "{\"cniVersion\": \"1.0.0\", \"code\": 100, \"msg\": \"$1\"}"
	exit 1
}

[ "$CNI_COMMAND" != DEL ] || [ ! -e "$DEMO_MOODS/down" ] || mood=refuse

case $mood in
well) exec "$DEMO_HOST_LOCAL" ;;
hang) exec sleep 300 ;;
die) kill -KILL $$ ;;
refuse) fail "dial tcp 10.96.0.1:443: connect: connection refused" ;;
late) # released, but nobody hears of it
	"$DEMO_HOST_LOCAL"
	exec sleep 300
	;;
gone) # released, and then surprised that it is
	"$DEMO_HOST_LOCAL"
	fail "Did not find reserved IP for container $CNI_CONTAINERID"
	;;
esac
