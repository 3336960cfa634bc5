<?php
// A backend for `tidewire serve` in plain PHP.
//
//   TIDEWIRE_BACKEND_SECRET=0123456789abcdef php -S 127.0.0.1:8080 index.php
//   TIDEWIRE_BACKEND_SECRET=0123456789abcdef tidewire serve --backend http://127.0.0.1:8080/tidewire \
//       --backend-events connect,subscribe,publish,request,message --topics-open
declare(strict_types=1);

// Whether the engine has sent this body within the last five minutes.
function is_signed(string $header, string $body, string $secret): bool
{
    if (!preg_match('/^t=(\d+),v1=([0-9a-f]{64})$/', $header, $match)) {
        return false;
    }
    $expected = hash_hmac('sha256', "$match[1].$body", $secret);
    return abs(time() - (int) $match[1]) <= 300 && hash_equals($expected, $match[2]);
}

function answer(array $event): array
{
    switch ($event['event']) {
        case 'connect':
            parse_str($event['query'], $query);
            return isset($query['user'])
                ? ['user' => $query['user']]
                : ['refused' => ['reason' => 'say who you are: /ws?user=ada']];
        case 'subscribe':
            $own = "users.{$event['user']}";
            $others = array_filter($event['topics'], fn ($topic) => str_starts_with($topic, 'users.') && $topic !== $own);
            $refusal = ['reason' => 'this topic belongs to somebody else'];
            return ['refused_topics' => (object) array_fill_keys($others, $refusal)];
        case 'publish':
            $text = $event['payload']['text'] ?? null;
            return is_string($text) && $text !== ''
                ? ['payload' => ['text' => $text, 'from' => $event['user']]]
                : ['refused' => ['reason' => 'a message is {"text": "…"}']];
        case 'request':
            return $event['type'] === 'add' && is_array($event['payload'])
                ? ['payload' => array_sum($event['payload'])]
                : ['error' => ['code' => 'NOT_FOUND', 'message' => 'nothing answers to this']];
        default:
            return [];
    }
}

$body = file_get_contents('php://input');
$secret = getenv('TIDEWIRE_BACKEND_SECRET') ?: '';
if ($secret === '') {
    error_log('set TIDEWIRE_BACKEND_SECRET to the secret of the server');
    http_response_code(500);
    exit;
}
if (!is_signed($_SERVER['HTTP_TIDEWIRE_SIGNATURE'] ?? '', $body, $secret)) {
    http_response_code(401);
    exit;
}
$event = json_decode($body, true);
if (!is_array($event)) {
    http_response_code(400);
    exit;
}
if (array_is_list($event)) {
    // Nothing waits for an answer. An id that was seen before is a repetition.
    foreach ($event as $one) {
        error_log(json_encode($one));
    }
    http_response_code(204);
    exit;
}
header('Content-Type: application/json');
echo json_encode((object) answer($event));
