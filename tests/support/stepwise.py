"""The rollout of one replica simulated step by step: the oracle for closed forms and events."""


def stepwise_s(prompts, responses, coefficients, sequences, tokens):
    """Run decode steps one by one with in-order admission by slots and reserved final contexts."""
    waiting = list(zip(prompts, responses, strict=True))
    running = []  # [context, tokens left, final context]
    seconds = 0.0
    while waiting or running:
        while waiting and len(running) < sequences:
            prompt, response = waiting[0]
            if sum(each[2] for each in running) + prompt + response > tokens:
                break
            waiting.pop(0)
            running.append([prompt, response, prompt + response])
        contexts = sum(each[0] + 0.5 for each in running)  # the middle of the step
        seconds += (
            coefficients.fixed_s
            + coefficients.per_sequence_s * len(running)
            + coefficients.per_token_s * contexts
        )
        for each in running:
            each[0] += 1
            each[1] -= 1
        running = [each for each in running if each[1]]
    return seconds


def timewise_s(prompts, responses, coefficients, sequences, tokens, turns, wait_s, slice_s=1e-3):
    """Let time pass in small slices; a slice adds slice ÷ step time tokens to every running sequence."""
    waiting = list(zip(prompts, responses, strict=True))
    held = []  # [done, prompt, response, turns finished, awake at]
    now = 0.0
    while waiting or held:
        while waiting and len(held) < sequences:
            prompt, response = waiting[0]
            if sum(each[1] + each[2] for each in held) + prompt + response > tokens:
                break
            waiting.pop(0)
            held.append([0.0, prompt, response, 0, 0.0])
        running = [each for each in held if each[3] < turns and each[4] <= now]
        step = (
            coefficients.fixed_s
            + coefficients.per_sequence_s * len(running)
            + coefficients.per_token_s * sum(each[1] + each[0] for each in running)
        )
        now += slice_s
        for each in running:
            each[0] += slice_s / step
            if each[0] >= each[2] * (each[3] + 1) / turns:
                each[3] += 1
                each[4] = now + wait_s
        held = [each for each in held if each[3] < turns or each[4] > now]
    return now
