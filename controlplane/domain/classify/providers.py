"""Provider knowledge: which code, message and status means which reason. Add a row to extend it.

The first row that matches wins, so rows stand from the unmistakable to the vague: codes with one
meaning, messages that refine a shared code, shared codes, vague messages. The bare status follows
in ``lookup``.
``code`` must match one whole code (lower case, no punctuation, see ``signals``); ``message`` is
searched in the lower-case text; ``when`` is a further test. An empty field matches everything.

Invariant: rows hold facts about providers; what a reason leads to stands in ``rules``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from controlplane.domain.classify.signals import Signals
from controlplane.domain.verdict import Scope


@dataclass(frozen=True, slots=True)
class Row:
    """One fact. ``statuses`` () means any; ``scope`` None means the reason's own."""

    reason: str
    provider: str = ""
    statuses: tuple[int, ...] = ()
    code: str = ""
    message: str = ""
    scope: Scope | None = None
    when: Callable[[Signals], bool] | None = None


_LIMIT_AND_ASK = re.compile(r"limit:?\s*([0-9][0-9,]*)\b.{0,80}?requested:?\s*([0-9][0-9,]*)")
# Providers whose codes are numbers of their own.
_ZHIPU = r"zhipu|bigmodel|\bglm|(^|[^a-z])z[._-]?ai\b"
_BAIDU = r"baidu|qianfan|wenxin|ernie"
_REFUSED = (200, 400, 401, 402, 403, 404, 412, 413, 422, 429)
# Under 401, 403 or 404 a code of the server's fault is only the family that a provider gives all.
_MAY_BE_THEIRS = (200, 400, 408, 409, 429, *range(500, 600))
_BAD = (200, 400, 404, 410, 422)
_SIZE = (200, 400, 413, 422)
_NOT_A_PART = re.compile(r"ratelimit|toomanyrequests|overloaded|quota|billing|authentication")


def asks_more_than_the_limit(signals: Signals) -> bool:
    """One request needs more than a whole period allows ("Limit 30000, Requested 342389").

    With "Used" between the two it is an ordinary limit that waiting helps, unless the request alone
    is above it. Code and type are the same in both.
    """
    match = _LIMIT_AND_ASK.search(signals.message)
    if match is None:
        return False
    limit, asked = (int(text.replace(",", "")[:15]) for text in match.groups())
    return asked > limit


def no_wait_named(signals: Signals) -> bool:
    """Nothing says when to come back, as it would for a limit that refills."""
    return not signals.has_wait and "try again in" not in signals.message


def refuses_a_part(signals: Signals) -> bool:
    """One part of the request is refused, and no code beside it speaks of a limit or an account."""
    return signals.part and not any(map(_NOT_A_PART.search, signals.codes))


# Messages that are the request's own fault, whoever says them.
_OF_THE_REQUEST = (
    Row("context_length", statuses=(*_SIZE, 403, 500),
        message=r"maximum (context|prompt|model) (length|window)"
        r"|context (length|window|size)[^.]{0,60}exceed"
        r"|exceed[^.]{0,60}context (length|window|size|limit)|contextwindowexceeded"
        r"|(longer|greater) than the [^.]{0,30}(context|model) length|context length of only"
        r"|`?inputs`? tokens \+ `?max_new_tokens`? must be|too many tokens: "
        r"|tokens? (length )?too long"
        r"|(prompt|input) is too long|(prompt|input) (contains|has) .{0,40}too large for model"
        r"|configured context size|(allowed )?input length (of|should be)|max input tokens"
        r"|tokens in request more than|input tokens (exceed|in excess)"
        r"|must have less than \d+ tokens"
        r"|(input|prompt|token) (token )?count[^.]{0,60}exceed|reduce the length of the (messages|"
        r"prompt|input)|exceeds the maximum number of (input )?tokens|too many (input )?tokens in"),
    Row("request_too_large", statuses=_SIZE,
        message=r"(request|payload|body|entity)( entity| body| size)? (is )?too large"
        r"|exceeds the maximum (allowed )?(number of bytes|size)"),
    Row("content_filtered", statuses=(200, 400, 403, 421, 422, 446, 451),
        message=r"content[- _](filter|policy|management|moderation)|\bflagged\b|responsible ai"
        r"|safety (system|filter|polic)|prohibited (content|use)|usage (polic|guideline)|moderation"
        r"|inappropriate content|sensitive (content|information)|guardrail|敏感"),
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    # 0. An edge that stopped the call says so in a header; the page and the status may be any.
    Row("blocked_at_edge", when=lambda signals: signals.stopped),
    # 1. A limit that no wait satisfies, under the codes of one that refills.
    Row("request_too_large", statuses=(200, 400, 413, 429), when=asks_more_than_the_limit),
    Row("request_too_large", statuses=(413, 429), message=r"^request too large"),
    Row("request_too_large", "anthropic", (429,),
        message=r"long context (requests|beta)", when=no_wait_named),
    # 2. Codes with one meaning, and two words that take it from such a code.
    Row("rate_limited", message=r"error-code#token-limit"),  # DashScope's minute, as no quota
    Row("rate_limited", code=r"inflightbudgetexhausted"),
    Row("rate_limited", statuses=(200, 429), code=r"insufficientquota",
        message=r"limit of concurrent|quota of (requests|tokens) per (minute|second)"),
    Row("quota_exhausted", code=r"insufficient.{0,20}(quota|balance|credits?|funds)(balance)?"
        r"|quotaexceeded|usagelimit(reached|exceeded)|billing(hardlimitreached|notactive|error)|arrearage"
        r"|exceededcurrentquotaerror|creditbalancetoolow|(account)?outofcredits?|paymentrequired"
        r"|servicequotaexceeded(exception)?|daily(limit|quota)exceeded|.*quotaexhausted"
        r"|creditsexhausted|noquota|accountoverdue(error)?|prepaidbillingoverdue|.*inarrears"
        r"|preconsumetokenquotafailed|allocationquotafreetieronly|limitexceededexception"),
    Row("spend_cap", code=r".*spend(ing)?limit(reached|exceeded)|budgetexceeded(error)?"
        r"|monthlylimit(reached|exceeded)|.*spendingcap.*|setlimitexceeded"),
    Row("content_filtered", code=r"content(filter(ed)?|moderation.*|blocked)"
        r"|.*contentpolicyviolation|cyberpolicyviolation|.*sensitivecontentdetected.*"
        r"|contentfiltererror|responsibleaipolicyviolation|moderationblocked|moderationerror"
        r"|datainspectionfailed|promptblocked|invalidprompt|prohibitedcontent|safety(error)?"
        r"|sensitive(content)?|guardrailintervened|unsafecontent"),
    Row("context_length", code=r"context(length|window)exceeded(error)?|prompttoolong"
        r"|stringabovemaxlength|(input)?tokens?limitexceeded|maxtokensexceeded|inputtoolong"
        r"|contextlengtherror|exceedcontextsizeerror|(tokens|characters)toolong"),
    Row("request_too_large", code=r"(request|payload|requestentity|contentlength)toolarge"),
    Row("invalid_request", statuses=(400, 422),
        code=r"(unknown|unsupported|missingrequired)parameter"
        r"|invalid(functionparameters|image(url|format)?|encryptedcontent)|stringtoolong|(array|integer|decimal)abovemax(length|value)"),
    Row("model_not_found", code=r"(model|deployment)(not(found|exist)|decommissioned|deprecated"
        r"|terminated|retired|gone|doesnotexist)(exception|error)?|unknownmodel|nosuchmodel"
        r"|invalidmodel(name|error)?|unsupportedmodel|modelnotsupported|modelnotavailable"
        r"|(key|team|user|org|project)?modelaccessdenied|modelnotopen"),
    Row("model_overloaded", code=r"modelcapacity(exhausted|exceeded)|insufficientsystemresource"),
    Row("unusable_output", code=r"toolusefailed|jsonvalidatefailed|unexpectedtoolcall"
        r"|malformed(functioncall|tooluse|modeloutput)"),
    Row("model_not_ready", code=r"modelnotready(exception)?|modelloading|modelwarmingup"),
    Row("auth", code=r"(invalid|incorrect|expired|missing|revoked)apikey|apikey(invalid|expired)"
        r"|invalidauthentication|account(deactivated|disabled|suspended)|accessterminated"
        r"|tokenexpired|expiredtoken(exception)?|unrecognizedclient(exception)?"
        r"|invalidsignature(exception)?|unauthenticated|mismatchedorganization|ipnotauthorized"
        r"|organizationrestricted|authfailure.*|(missing|invalid)authenticationtoken(exception)?"),
    # 3. Google: a used-up day and a used-up minute share one status and one message.
    Row("quota_exhausted", "gemini|google|vertex", (200, 429), code=r".*perday.*"),
    Row("quota_exhausted", "gemini|google|vertex", (200, 429), message=r"\blimit: 0\b"),
    Row("rate_limited", "gemini|google|vertex", (200, 429), code="resourceexhausted",
        when=lambda signals: signals.has_wait),
    # 4. Messages that say more than the code or the status beside them. First the refusals of one
    # part of the request: they quote it, and a client's own words must not rest a key or a model.
    *(replace(row, statuses=_SIZE, when=refuses_a_part) for row in _OF_THE_REQUEST),
    Row("not_found", statuses=_SIZE, when=refuses_a_part,
        message=r"^(previous response|item|file|conversation)\b[^.]{0,80}not found"),
    Row("invalid_request", statuses=(200, 400, 422, 424), when=refuses_a_part),
    # Nor may what a client refers to: its tools' servers, addresses, files of another account.
    Row("invalid_request", statuses=(200, 400, 422, 424),
        message=r"\bmcp server\b|cannot fetch content|(timeout|error) while downloading"
        r"|(failed|unable) to (download|fetch) (the )?(file|image|video|audio|media|document"
        r"|content|multimodal|url|https?:)"),
    Row("invalid_request", statuses=(500,), message=r"failed to (download|fetch) \w+ from https?://"),
    Row("not_found", statuses=(403,), message=r"permission to access the file\b"
        r"|cachedcontent not found|not have storage\.objects\.\w+ access"),
    Row("spend_cap", statuses=_REFUSED, message=r"spend(ing)? (limit|cap)|specified api usage limit"
        r"|monthly (usage|budget|spend)|usage cap\b"),
    Row("rate_limited", "cohere", (429,), message=r"trial key.{0,80}/ ?min"),
    Row("quota_exhausted", statuses=_REFUSED, message=r"credit balance is too low"
        r"|insufficient (account |user )?(balance|credits?|funds|quota)|out of credits"
        r"|requires? (more|additional) credits?|can only afford|used all (available )?credits"
        r"|exceeded your (current quota|monthly)|no (remaining |more )?credits"
        r"|credits (are |have been )?(depleted|exhausted)|hard limit has been reached"
        r"|usage limit (has been )?(reached|exceeded)|reached your (\w+ )?usage limit"
        r"|key limit exceeded|free-models-per-day|please recharge|quota is not enough"
        r"|have any credits|credit limit exceeded|out of call volume quota|daily free allocation"
        r"|free (quota|tier|allocation) (has been |is )?(exhausted|used up)"
        r"|in arrears|overdue|purchase (more )?credits|trial key|billing (is )?not active"
        r"|quota (for .{0,60}|is |has been )?(used up|exhausted)[^.]{0,60}\b(plan|billing)"),
    Row("quota_exhausted", statuses=(200, 400, 429), when=no_wait_named,
        message=r"(per[- ]day|daily) (limit|quota|token)|(tokens?|requests?) per day"
        r"|\bdaily\b.{0,40}\b(limit|quota)"),
    # One model is closed to a key that is good for others: a rest of the key would close them all.
    Row("model_not_found", statuses=_REFUSED,
        message=r"n['\u2019o]t have access to (the |this )?model|\bno access to (the |this )?model"
        r"|not allowed to (access|use|sample from) (this |publisher )?model|not activated the model"
        r"|\bmodel\b[^.]{0,80}(not |un)available (in|for) (\w+ ){0,3}(region|country|location|plan"
        r"|account|(api )?key|project|organi[sz]ation|tier|subscription)\b"
        r"|plan (does )?not (support|include) (this )?model|on-demand throughput isn"
        r"|model (use case details|access is denied)"
        r"|not authorized to perform: \S+ on resource: \S{0,200}"
        r"(foundation-model|inference-profile)/"),
    Row("auth", statuses=_REFUSED, message=r"(invalid|incorrect|expired|missing) (x-)?api[- ]key"
        r"|api key (is )?(not valid|invalid|expired|disabled|not found|was reported)"
        r"|no auth credentials|invalid subscription key|oauth token (has )?expired"
        r"|(organi[sz]ation|account|workspace|project) (\S{1,60} )?(has been|is|was) (disabled"
        r"|deactivated|suspended|banned|restricted|terminated|locked)|invalid bearer token"
        r"|credential is only authorized"),
    Row("permission", statuses=(200, 400, 403, 451), message=r"(country|region|location)[^.]{0,60}"
        r"not (supported|available|allowed)|unsupported_country"),
    *_OF_THE_REQUEST,
    Row("model_not_found", statuses=_BAD, message=r"\bmodel\b.{0,120}(not exist|not found"
        r"|(is|was|been) (decommissioned|deprecated|retired)|end of (its )?life|is not a valid"
        r"|no longer (available|supported)|not supported for gen)"
        r"|models?/\S{1,80} is not found|not a valid model|no endpoints found"
        r"|model identifier is invalid|unknown model|invalid model|no such model|unsupported model"
        r"|^(model: |deployment)\S+|deployment[^.]{0,60}does not exist"),
    # 5. Aggregators: the model's host failed, not the aggregator and not our key.
    Row("rate_limited", statuses=(200, 400, 403, 429, 502, 503),
        message=r"rate[- ]limited upstream|upstream rate limit", scope=Scope.MODEL),
    Row("rate_limited", statuses=(429,), message=r"provider returned error", scope=Scope.MODEL),
    Row("upstream_error", statuses=(200, 500, 502, 503, 504, 520, 524),
        message=r"provider returned error"),
    Row("timeout", "openrouter", (408, 504, 524), scope=Scope.MODEL),
    Row("upstream_error", "openrouter", (500, 502, 503)),
    Row("upstream_error", "openrouter", (200,), code=r"servererror"),
    Row("upstream_error", statuses=(200,), code=r"networkerror"),
    # 6. Codes that several faults share. Capacity before rate, rate before the rest.
    Row("model_overloaded", code=r"(service)?tiercapacityexceeded|servicetiercapacityexceeded|3505"
        r"|modeloverloaded|resourceunavailable|nocapacity|modelunavailable|capacityexceeded"),
    Row("model_overloaded", message=r"flex tier capacity|(service tier )?capacity exceeded for this"
        r" model|no capacity available for model|^\S+ is currently over capacity"
        r"|no deployments? available"),
    # "no channel to be had" and "too many visitors"
    Row("model_overloaded", message="无可用渠道|访问量过大"),
    Row("overloaded", code=r"queueexceeded"),
    Row("overloaded", message=r"system capacity limit|capacity temporarily exceeded"),
    Row("overloaded", statuses=(503,), code=r"slowdown"),
    Row("model_overloaded", message=r"\bmodel\b[^.]{0,60}(overloaded|(at|over) capacity"
        r"|\bbusy\b|unavailable|high (demand|traffic))"),
    Row("model_overloaded", statuses=(400,), message=r"^function .{1,80}degraded function"),  # NIM
    Row("model_not_ready", statuses=(400,), message=r"\bmodel\b[^.]{0,40} not ready for inference"),
    Row("model_error", statuses=(200, 400, 500), message=r"\bmodel (has )?(crashed|unloaded)"),
    Row("model_not_ready", statuses=(503,),
        message=r"^loading model|\bmodel\b.{0,160}\b(is )?(currently |still )?"
        r"(loading|warming up)"),
    Row("overloaded", code=r"(server|engine|serveris|engineis|service)?overloaded(error|exception)?"
        r"|serverbusy|overload"),
    Row("overloaded", statuses=(200, 400, 403, 429, 500, 502, 503),
        message=r"(engine|server|service|system)\b[^.]{0,40}(overloaded|(at|over) capacity|\bbusy\b"
        r"|high demand)"),
    Row("request_too_large", statuses=(413,)),
    Row("timeout", code=r"modeltimeout(exception)?", scope=Scope.MODEL),
    Row("timeout", code=r"deadlineexceeded|(request|gateway|upstream|internalerror)?time(d)?out"
        r"(error|exception)?|requesttimedout"),
    Row("conflict", code=r"conflict(error|exception)?|aborted"),
    Row("rate_limited", code=r"ratelimit(s|ed|error|exceeded(error)?|reached|reachederror)?"
        r"|rateexceeded|ratelimiterror|toomanyrequests(exception|error)?|slowdown"
        r"|throttl(ing|ed)(exception|error|ratequota|allocationquota|burstrate)?|resourceexhausted"
        r"|(requestlimit|tpm|rpm)exceeded|requestthrottled(exception)?|concurrencylimitexceeded"),
    Row("rate_limited", "mistral", code=r"1300"),
    Row("rate_limited", _ZHIPU, code=r"1302|1303|1305|1313"),
    Row("model_overloaded", _ZHIPU, code=r"1312"),
    Row("quota_exhausted", _ZHIPU, code=r"1113|1304|1308|1309|1310"),
    Row("auth", _ZHIPU, code=r"100[0-4]|111[0-2]|1121"),
    Row("permission", _ZHIPU, code=r"1220"),
    Row("content_filtered", _ZHIPU, code=r"1301"),
    Row("context_length", _ZHIPU, code=r"1261"),
    Row("model_not_found", _ZHIPU, code=r"1211|1212|122[12]|1311"),
    Row("invalid_request", _ZHIPU, code=r"1210|121[345]"),
    Row("server_error", _ZHIPU, code=r"1120|1200|1230|1234"),
    Row("rate_limited", "minimax", code=r"1002|1039|1041|2045"),
    Row("quota_exhausted", "minimax", code=r"1008|2056"),
    Row("auth", "minimax", code=r"1004|2049"),
    Row("content_filtered", "minimax", code=r"1026|1027"),
    Row("model_not_found", "minimax", code=r"2061"),
    Row("invalid_request", "minimax", code=r"2013"),
    Row("timeout", "minimax", code=r"1001"),
    Row("server_error", "minimax", code=r"1000|1013|1024|1033"),
    Row("rate_limited", _BAIDU, code=r"4|18|336501|336502"),
    Row("quota_exhausted", _BAIDU, code=r"17|19"),
    Row("auth", _BAIDU, code=r"13|14|100|110|111"),
    Row("permission", _BAIDU, code=r"6"),
    Row("context_length", _BAIDU, code=r"336007|336103"),
    Row("invalid_request", _BAIDU, code=r"33600[3-6]|336104"),
    Row("server_error", _BAIDU, code=r"1|15|336000|336100"),
    Row("model_overloaded", "groq", (498,)),
    Row("model_error", code=r"model(stream)?error(exception)?"),
    Row("overloaded", statuses=(200, 400, 429, 503),
        code=r"(service)?unavailable(exception|error)?"),
    Row("auth", code=r"authentication(error|failed|required)|unauthori[sz]ed(exception)?"
        r"|autherror|notauthenticated", statuses=_REFUSED),
    Row("permission", statuses=_REFUSED, code=r"permission(denied|error)(error)?|access"
        r"denied(exception|error)?|forbidden|notauthorized(exception)?|servicedisabled"),
    Row("not_found", statuses=(404,), message=r"(invalid|unknown) (request )?url|unknown route"),
    Row("not_found", statuses=_BAD, message=r"\b(file|response|thread|batch|vector store|"
        r"conversation|container|item)\b[^.]{0,80}not found"),
    Row("model_not_found", statuses=_BAD, code=r"notfound(error)?|resourcenotfound(exception)?"),
    Row("server_error", statuses=_MAY_BE_THEIRS,
        code=r"(internal)?servererror|internal(error|serverexception|failure)?"
        r"|apierror|badgateway|providererror|systemerror|serverexception|upstreamerror"
        r"|serviceunavailable(exception|error)?|unavailable"),
    Row("invalid_request", statuses=(200,), code=r"invalid(request(error)?|argument|parameter"
        r"(error)?)|validation(exception|error)|badrequest(error)?|failedprecondition"),
    # 7. Vague messages under a status that says nothing of the kind.
    Row("rate_limited", statuses=(200, 400, 403, 503), message=r"rate[- ]?limit|too many requests"
        r"|throttl|error code: 1015"),
    Row("blocked_at_edge", statuses=(403,), when=lambda signals: signals.html),
    Row("blocked_at_edge", statuses=(403,), message=r"error code: 10[0-9]{2}|attention required"
        r"|just a moment|cloudflare"),
    Row("overloaded", statuses=_BAD, message=r"overloaded|temporar(y|ily)|try again later"
        r"|try again shortly|retry later|at capacity|no available (channel|provider|account)"
        r"|service (is )?unavailable|upstream (error|request failed|connect)|unexpected error"
        r"|try your request again|internal (server )?error"),
)  # fmt: skip
